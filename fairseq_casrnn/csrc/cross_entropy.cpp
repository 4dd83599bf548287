#include "vec.h"  // first: it chooses the instruction set

#include "cross_entropy.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensors.h"

namespace casrnn {
namespace {

using at::Tensor;

struct Loss {
  double smoothed = 0, plain = 0;
};

// Of one row; grad (size), if there is one, becomes the gradient.
template <class T>
Loss row_loss(const T* x, int64_t size, int64_t target, double smoothing, T* grad) {
  constexpr int64_t width = Vec<T>::size();
  const T top = largest(x, size);
  Vec<T> powers(T(0)), logits(T(0));
  int64_t i = 0;
  for (; i + width <= size; i += width) {
    const Vec<T> less = Vec<T>::loadu(x + i) - Vec<T>(top);
    const Vec<T> power = exp_of_negative(less);
    powers = powers + power;
    logits = logits + less;
    if (grad) power.store(grad + i);
  }
  double total = sum(powers), all = sum(logits);
  for (; i < size; ++i) {
    const T power = std::exp(x[i] - top);
    total += power;
    all += x[i] - top;
    if (grad) grad[i] = power;
  }
  const double other = smoothing / double(size - 1);  // q of every class but the target
  const double more = 1 - smoothing - other;          // and what the target has more
  if (grad) {
    const T scale = T(1 / total), off = T(-other);
    for (i = 0; i + width <= size; i += width)
      fmadd(Vec<T>::loadu(grad + i), Vec<T>(scale), Vec<T>(off)).store(grad + i);
    for (; i < size; ++i) grad[i] = grad[i] * scale + off;
    grad[target] -= T(more);
  }
  const double log_total = std::log(total);
  const double plain = log_total - double(x[target] - top);
  // Without smoothing a logit of -inf, whose sum is not finite, counts for nothing.
  const double others = other > 0 ? other * (double(size) * log_total - all) : 0;
  return {more * plain + others, plain};
}

template <class T>
Loss all_rows(const Tensor& logits, const Tensor& target, double smoothing, int64_t pad, const Tensor& grad) {
  const int64_t rows = logits.size(0), size = logits.size(1);
  const T* x = logits.const_data_ptr<T>();
  const int64_t* classes = target.const_data_ptr<int64_t>();
  T* d = data<T>(grad);
  std::vector<Loss> losses(rows);
  at::parallel_for(0, rows, 1 + (1 << 14) / size, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* d_row = d ? d + r * size : nullptr;
      if (classes[r] != pad) losses[r] = row_loss(x + r * size, size, classes[r], smoothing, d_row);
      else if (d_row) std::fill_n(d_row, size, T(0));
    }
  });
  Loss total;
  for (const Loss& loss : losses) total.smoothed += loss.smoothed, total.plain += loss.plain;
  return total;
}

}  // namespace

std::tuple<double, double, Tensor> cross_entropy(const Tensor& logits, const Tensor& target, double smoothing,
                                                 int64_t pad, bool wants_grad) {
  const int64_t rows = logits.size(0), size = logits.size(1);
  check("target", target, {rows});
  TORCH_CHECK(logits.is_contiguous() && target.is_contiguous(), "logits or targets are not dense");
  TORCH_CHECK(size > 1, "there is only one class");
  const int64_t* first = target.const_data_ptr<int64_t>();
  const bool known = std::all_of(first, first + rows, [&](int64_t y) { return y == pad || (y >= 0 && y < size); });
  TORCH_CHECK(known, "a target is not among the ", size, " classes");
  const Tensor grad = wants_grad ? at::empty_like(logits) : Tensor();
  const Loss loss = AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "casrnn::cross_entropy", [&] {
    return all_rows<scalar_t>(logits, target, smoothing, pad, grad);
  });
  return {loss.smoothed, loss.plain, grad};
}

}  // namespace casrnn
