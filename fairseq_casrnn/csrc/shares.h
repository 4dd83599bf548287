// The rows of a step shared out among threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels.h"
#include "tensors.h"

namespace casrnn {

// How many shares of `rows` rows of `columns` elements are worth a thread each.
inline int64_t shares_of(int64_t rows, int64_t columns) {
  constexpr int64_t kFewest = 1 << 13;  // elements; with fewer, waking a thread takes longer
  return std::clamp<int64_t>(rows * columns / kFewest, 1, std::min<int64_t>(at::get_num_threads(), rows));
}

// f(share, first_row, last_row) for every share, all at once.
template <class F>
void shared_out(int64_t shares, int64_t rows, const F& f) {
  if (shares == 1) return f(0, 0, rows);
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share)
      f(share, rows * share / shares, rows * (share + 1) / shares);
  });
}

// A kernel on the rows of one layer, step by step. In the backward pass every share has its own sums of
// gradients, so that no thread waits for another.
template <class T>
class SharedRows {
 public:
  // rows: the most that a step has.
  SharedRows(const Kernel<T>& kernel, int64_t rows, int64_t gates)
      : kernel_(kernel), gates_(gates), shares_(shares_of(rows, gates)) {}

  void forward(const Step<T>& step) const {
    shared_out(shares(step), step.batch,
               [&](int64_t, int64_t begin, int64_t end) { kernel_.forward(step, begin, end); });
  }

  // Before the first step of a backward pass; size: H, like: of the sums' type.
  void clear(int64_t size, bool wants_bias, const at::Tensor& like) {
    if (kernel_.grads) params_ = at::zeros({shares_, kernel_.grads, size}, like.options());
    if (wants_bias) bias_ = at::zeros({shares_, gates_}, like.options());
  }

  // Sets d_params and d_bias of the step.
  void backward(const Step<T>& step) const {
    shared_out(shares(step), step.batch, [&](int64_t share, int64_t begin, int64_t end) {
      Step<T> own = step;
      own.d_params = data<T>(params_, share);
      own.d_bias = data<T>(bias_, share);
      kernel_.backward(own, begin, end);
    });
  }

  // (Kernel::grads, H) and (gates), summed over all steps since clear(); undefined where there are none.
  at::Tensor d_params() const { return params_.defined() ? params_.sum(0) : params_; }
  at::Tensor d_bias() const { return bias_.defined() ? bias_.sum(0) : bias_; }

 private:
  int64_t shares(const Step<T>& step) const { return std::min(shares_, shares_of(step.batch, gates_)); }

  const Kernel<T>& kernel_;
  const int64_t gates_, shares_;
  at::Tensor params_, bias_;  // a row for each share
};

}  // namespace casrnn
