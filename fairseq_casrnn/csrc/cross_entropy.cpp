#include "vec.h"  // first: it chooses the instruction set

#include "cross_entropy.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "conversions.h"
#include "multiply.h"
#include "tensors.h"

namespace casrnn {
namespace {

using at::Tensor;

struct Loss {
  double smoothed = 0, plain = 0;
};

// The losses of one row; the gradient is written to grad (size) unless null. grad may be x itself.
template <class T>
Loss row_loss(const T* x, int64_t size, int64_t target, double smoothing, T* grad) {
  constexpr int64_t width = Vec<T>::size();
  const T top = largest(x, size), chosen = x[target] - top;
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
  const double more = 1 - smoothing - other;          // additional q of the target
  if (grad) {
    const T scale = T(1 / total), off = T(-other);
    for (i = 0; i + width <= size; i += width)
      fmadd(Vec<T>::loadu(grad + i), Vec<T>(scale), Vec<T>(off)).store(grad + i);
    for (; i < size; ++i) grad[i] = grad[i] * scale + off;
    grad[target] -= T(more);
  }
  const double log_total = std::log(total);
  const double plain = log_total - double(chosen);
  // Without smoothing the sum of logits is not read: it is not finite if a logit is -inf.
  const double others = other > 0 ? other * (double(size) * log_total - all) : 0;
  return {more * plain + others, plain};
}

// The number of rows of logits to compute at once, in chunks of about the same size: few enough to
// stay in the cache, but many, since the weight's gradient is read and written for every chunk.
int64_t rows_at_once(int64_t rows, int64_t size, bool narrow) {
  const int64_t per_float = narrow ? 2 : 1;
  constexpr int64_t kLogits = 1 << 21, kFewest = 512, kMultiple = 16;
  const int64_t most = std::max(kLogits / size, kFewest) * per_float,
                parts = (rows + most - 1) / most;
  return ((rows + parts - 1) / parts + kMultiple - 1) / kMultiple * kMultiple;
}

// Whether all products round to bfloat16, so that gradients of logits can be kept in it.
bool keeps_bfloat16(const Tensor& x, const Tensor& weight, int64_t chunk) {
  return accepts_bfloat16(weight, chunk) && accepts_bfloat16(x, weight.size(0));
}

// The losses of rows without padding and their classes. Unless undefined, the gradient of x is
// written, those of weight and bias are added to.
template <class T>
Loss all_rows(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const std::vector<int64_t>& classes, double smoothing,
              const std::array<Tensor, 3>& grads) {
  const auto& [d_x, d_weight, d_bias] = grads;
  const int64_t rows = x.size(0), size = weight.size(0);
  const bool wants_any = d_x.defined() || d_weight.defined() || d_bias.defined();
  int64_t chunk = std::min(rows, rows_at_once(rows, size, true));
  const bool in_bfloat16 = keeps_bfloat16(x, weight, chunk);  // of floats only
  if (!in_bfloat16) chunk = std::min(rows, rows_at_once(rows, size, false));
  // Logits and then their gradients; with `in_bfloat16` only these, if they are wanted.
  const Tensor buffer = at::empty({in_bfloat16 && !wants_any ? 0 : chunk, size},
                                  x.options().dtype(in_bfloat16 ? at::kBFloat16 : x.scalar_type()));
  const Factor forward(weight.t(), x.narrow(0, 0, chunk));
  std::optional<Factor> back;
  if (d_x.defined()) back.emplace(weight, buffer);
  std::vector<Loss> losses(rows);
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t count = std::min(chunk, rows - first);
    const Tensor some = x.narrow(0, first, count);
    const auto lose = [&](int64_t r, auto* row) {
      losses[first + r] =
          row_loss(row, size, classes[first + r], smoothing, wants_any ? row : nullptr);
    };
    if (in_bfloat16) {
      forward.multiply(some, bias, [&](int64_t begin, int64_t end, float* logits) {
        for (int64_t r = begin; r < end; ++r, logits += size) {
          lose(r, logits);
          if (wants_any) narrow_row(logits, size, data<at::BFloat16>(buffer) + r * size);
        }
      });
    } else {
      forward.multiply(buffer.narrow(0, 0, count), some, bias, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) lose(r, data<T>(buffer) + r * size);
      });
    }
    if (!wants_any) continue;
    const Tensor d_logits = buffer.narrow(0, 0, count);
    if (back) back->multiply(d_x.narrow(0, first, count), d_logits);
    if (d_weight.defined()) multiply(d_weight, d_logits.t(), some, {}, {}, true);
    if (d_bias.defined() && in_bfloat16) add_rows(d_logits, d_bias);
    else if (d_bias.defined()) d_bias.add_(d_logits.sum(0));
  }
  Loss total;
  for (const Loss& loss : losses) total.smoothed += loss.smoothed, total.plain += loss.plain;
  return total;
}

}  // namespace

CrossEntropy cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const Tensor& target, double smoothing, int64_t pad,
                           std::array<bool, 3> wants) {
  const int64_t rows = x.size(0), size = weight.size(0);
  check("weight", weight, {size, x.size(1)});
  check("bias", bias, {size});
  check("target", target, {rows});
  TORCH_CHECK(weight.scalar_type() == x.scalar_type() &&
                  (!bias.defined() || bias.scalar_type() == x.scalar_type()),
              "x, weight and bias are not of one type");
  TORCH_CHECK(target.is_contiguous(), "targets are not dense");
  TORCH_CHECK(size > 1, "there is only one class");
  std::vector<int64_t> kept, classes;
  const int64_t* const all = target.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    if (all[row] == pad) continue;
    TORCH_CHECK(all[row] >= 0 && all[row] < size, "a target is not among the ", size, " classes");
    kept.push_back(row);
    classes.push_back(all[row]);
  }
  const int64_t count = kept.size();
  const Tensor which = count < rows ? at::tensor(kept, target.options()) : Tensor();
  const Tensor used = (which.defined() ? x.index_select(0, which) : x).contiguous();
  CrossEntropy result;
  auto& [d_x, d_weight, d_bias] = result.grads;
  if (wants[0]) d_x = at::empty_like(used);
  if (wants[1]) d_weight = at::zeros(weight.sizes(), x.options());
  if (wants[2]) d_bias = at::zeros({size}, x.options());
  if (count) {
    const Loss loss = AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "casrnn::cross_entropy", [&] {
      return all_rows<scalar_t>(used, weight, bias, classes, smoothing, result.grads);
    });
    result.smoothed = loss.smoothed, result.plain = loss.plain;
  }
  if (wants[0] && which.defined()) d_x = at::zeros_like(x).index_copy_(0, which, d_x);
  return result;
}

}  // namespace casrnn
