#include "narrow.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace casrnn {
namespace {

using at::Tensor;

bool has_dot_products_but_no_amx() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_supports("avx512f")) return false;  // asks the operating system, too
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || d >> 22 & 1) return false;  // AMX-BF16
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 5 & 1;               // AVX512_BF16
#else
  return false;
#endif
}

// The library compiles a kernel for every shape. Batches differ in their number of tokens; rounded up,
// they share kernels.
int64_t rounded(int64_t rows) {
  const int64_t step = rows > 128 ? 32 : 4;
  return (rows + step - 1) / step * step;
}

// A bfloat16 copy of `matrix` with zeros up to the given size; its dense dimension stays dense.
Tensor narrowed(const Tensor& matrix, int64_t rows, int64_t columns) {
  if (matrix.stride(1) != 1 && matrix.stride(0) == 1) return narrowed(matrix.t(), columns, rows).t();
  const int64_t m = matrix.size(0), n = matrix.size(1);
  Tensor copy = at::empty({rows, columns}, matrix.options().dtype(at::kBFloat16));
  copy.narrow(0, 0, m).narrow(1, 0, n).copy_(matrix);
  if (m < rows) copy.narrow(0, m, rows - m).zero_();
  if (n < columns) copy.narrow(1, n, columns - n).zero_();
  return copy;
}

void widen(const Tensor& from, const Tensor& to, bool add) {
  const int64_t columns = to.size(1);
  const auto* first = from.const_data_ptr<at::BFloat16>();
  float* const out = to.mutable_data_ptr<float>();
  at::parallel_for(0, to.size(0), 1 + (1 << 16) / columns, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto* source = first + r * from.stride(0);
      float* target = out + r * to.stride(0);
      if (add)
        for (int64_t c = 0; c < columns; ++c) target[c] += float(source[c]);
      else
        for (int64_t c = 0; c < columns; ++c) target[c] = float(source[c]);
    }
  });
}

}  // namespace

bool is_narrow(const Tensor& factor, int64_t rows) {
  constexpr int64_t kFewest = 16;
  static const bool able = has_dot_products_but_no_amx();
  return able && rows >= kFewest && factor.scalar_type() == at::kFloat &&
         at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM;
}

void multiply_narrow(const Tensor& y, const Tensor& a, const Tensor& b) {
  const int64_t rows = rounded(a.size(0)), inner = rounded(a.size(1));
  widen(at::mm(narrowed(a, rows, inner), narrowed(b, inner, b.size(1))), y, false);
}

NarrowProduct::NarrowProduct(const Tensor& matrix, int64_t rows)
    : matrix_(narrowed(matrix, matrix.size(0), matrix.size(1))),
      x_(at::empty({rounded(rows), matrix.size(0)}, matrix_.options())),
      y_(at::empty({rounded(rows), matrix.size(1)}, matrix_.options())) {
  x_.narrow(0, rows, x_.size(0) - rows).zero_();
}

void NarrowProduct::run(const Tensor& x, const Tensor& y, bool add) const {
  x_.narrow(0, 0, x.size(0)).copy_(x);
  Tensor out = y_;
  at::mm_out(out, x_, matrix_);
  widen(y_, y, add);
}

}  // namespace casrnn
