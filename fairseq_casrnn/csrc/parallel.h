// Rows in chunks, one for each thread.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels.h"
#include "tensors.h"

namespace casrnn {

// How many threads are worth starting for `rows` rows of `columns` elements: the number of chunks.
inline int64_t num_chunks(int64_t rows, int64_t columns) {
  constexpr int64_t kFewest = 1 << 13;  // elements; with fewer, waking a thread takes longer
  return std::clamp<int64_t>(rows * columns / kFewest, 1,
                             std::min<int64_t>(at::get_num_threads(), rows));
}

// Calls f(chunk, first_row, last_row) for every chunk, in parallel.
template <class F>
void parallel_chunks(int64_t chunks, int64_t rows, const F& f) {
  if (chunks == 1) return f(0, 0, rows);
  at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk)
      f(chunk, rows * chunk / chunks, rows * (chunk + 1) / chunks);
  });
}

// Runs a kernel on the rows of one layer, step by step. In the backward every chunk has its own
// sums of gradients, so that no thread waits for another.
template <class T>
class SharedRows {
 public:
  // rows: the maximum of all steps.
  SharedRows(const Kernel<T>& kernel, int64_t rows, int64_t gates)
      : kernel_(kernel), gates_(gates), chunks_(num_chunks(rows, gates)) {}

  void forward(const Step<T>& step) const {
    parallel_chunks(chunks(step), step.batch, [&](int64_t, int64_t begin, int64_t end) {
      kernel_.forward(step, begin, end);
    });
  }

  // Call before the first step of a backward. size: H; like: has the dtype of the sums.
  void clear(int64_t size, bool wants_bias, const at::Tensor& like) {
    if (kernel_.grads) params_ = at::zeros({chunks_, kernel_.grads, size}, like.options());
    if (wants_bias) bias_ = at::zeros({chunks_, gates_}, like.options());
  }

  // Sets d_params and d_bias of the step.
  void backward(const Step<T>& step) const {
    parallel_chunks(chunks(step), step.batch, [&](int64_t chunk, int64_t begin, int64_t end) {
      Step<T> own = step;
      own.d_params = data<T>(params_, chunk);
      own.d_bias = data<T>(bias_, chunk);
      kernel_.backward(own, begin, end);
    });
  }

  // (Kernel::grads, H) and (gates), summed over all steps since clear(); undefined if there are
  // none.
  at::Tensor d_params() const { return params_.defined() ? params_.sum(0) : params_; }
  at::Tensor d_bias() const { return bias_.defined() ? bias_.sum(0) : bias_; }

 private:
  int64_t chunks(const Step<T>& step) const {
    return std::min(chunks_, num_chunks(step.batch, gates_));
  }

  const Kernel<T>& kernel_;
  const int64_t gates_, chunks_;
  at::Tensor params_, bias_;  // a row for each chunk
};

}  // namespace casrnn
