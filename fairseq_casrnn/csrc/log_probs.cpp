#include "vec.h"  // first: it chooses the instruction set

#include "log_probs.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "multiply.h"
#include "tensors.h"

namespace casrnn {

Normaliser normaliser(const float* x, int64_t size) {
  constexpr int64_t width = Vec<float>::size();
  const float top = largest(x, size);
  Vec<float> powers(0.0f);
  int64_t i = 0;
  for (; i + width <= size; i += width)
    powers = powers + exp_of_negative(Vec<float>::loadu(x + i) - Vec<float>(top));
  double total = sum(powers);
  for (; i < size; ++i) total += std::exp(x[i] - top);
  return {top, float(std::log(total))};
}

namespace {

// log softmax of one row, in place.
void log_softmax(float* x, int64_t size) {
  constexpr int64_t width = Vec<float>::size();
  const auto [top, rest] = normaliser(x, size);
  int64_t i = 0;
  for (; i + width <= size; i += width)
    (Vec<float>::loadu(x + i) - Vec<float>(top) - Vec<float>(rest)).store(x + i);
  for (; i < size; ++i) x[i] = x[i] - top - rest;
}

}  // namespace

at::Tensor log_probs(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const int64_t rows = x.size(0), size = weight.size(1);
  check("x", x, {rows, weight.size(0)});
  check("bias", bias, {size});
  TORCH_CHECK(x.scalar_type() == at::kFloat, "log_probs is of floats");
  TORCH_CHECK(!bias.defined() || bias.scalar_type() == at::kFloat, "the bias is not of floats");
  const at::Tensor table = at::empty({rows, size}, x.options());
  float* const y = data<float>(table);
  const at::Tensor rows_of_x = with_dense_dimension(x);
  Factor(weight, rows_of_x, 1, true)
      .multiply(table, rows_of_x, bias, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) log_softmax(y + row * size, size);
      });
  return table;
}

}  // namespace casrnn
