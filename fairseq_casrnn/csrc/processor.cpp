#include "processor.h"

#include <ATen/Context.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "brgemm.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace casrnn {
namespace {

using at::BFloat16;
using at::Tensor;

// Whether oneDNN makes kernels for T; it can be told not to use all that the processor has.
template <class T>
bool can_multiply() {
  constexpr int64_t depth = 32;
  T x[depth] = {T(1.0f), T(2.0f)}, matrix[depth] = {T(3.0f), T(4.0f)};
  float y = 0;
  const bool narrow = std::is_same_v<T, BFloat16>;
  try {
    brgemm(1, 1, depth, depth, 1, 1, false, x, matrix, &y, narrow);
  } catch (const std::exception&) {
    return false;
  }
  if (narrow) brgemm_release(true);
  return y == 11;
}

// The same for integers, whose sums must not saturate, as they do without VNNI.
bool can_multiply_integers() {
  constexpr int64_t depth = 64;
  uint8_t x[depth];
  int8_t matrix[depth];
  std::fill_n(x, depth, uint8_t(255));
  std::fill_n(matrix, depth, int8_t(127));
  int32_t y = 0;
  try {
    brgemm(1, 1, depth, depth, 1, 1, false, x, matrix, &y, true);
  } catch (const std::exception&) {
    return false;
  }
  brgemm_release(true);
  return y == depth * 255 * 127;
}

bool has_amx() {  // AMX-BF16
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 22 & 1;
#else
  return false;
#endif
}

bool has_dot_products() {  // AVX512_BF16
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_supports("avx512f")) return false;  // also checks the operating system
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 5 & 1;
#else
  return false;
#endif
}

// Whether torch's own products on the CPU may round to bfloat16, by either of its settings.
bool is_medium() {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
  return at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL) ==
         at::Float32Precision::BF16;
#else
  try {
    return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM;
  } catch (const c10::Error&) {  // the newer setting was used, which only newer versions return
    return false;
  }
#endif
}

}  // namespace

// 64 bytes in AMX's tiles, 4 in dot products.
int64_t depth_multiple(Precision precision) {
  if (precision == Precision::kFloat) return 1;
  static const int64_t bytes = has_amx() ? 64 : 4;
  return precision == Precision::kInt8 ? bytes : bytes / 2;
}

bool has_panels(const Tensor& matrix) {
  static const bool able = can_multiply<float>();
  return able && at::globalContext().userEnabledMkldnn() && matrix.device().is_cpu() &&
         matrix.scalar_type() == at::kFloat;
}

int64_t rows_worth_panels(int64_t usual) {
  static const bool torch_is_fast = has_amx();
  return torch_is_fast && is_medium() ? 256 : usual;
}

bool can_quantise() {
  static const bool able = can_multiply_integers();
  return able;
}

namespace {
std::atomic<bool> int8_asked = false;
}

void set_int8(bool on) { int8_asked = on; }

bool is_quantised(const Tensor& factor) {
  // Smaller ones would not pay, and are `small` in Product; a deeper one's sums might overflow.
  constexpr int64_t kSmallest = 1 << 15, kDeepest = 1 << 15;
  return int8_asked && factor.numel() > kSmallest && factor.size(0) <= kDeepest &&
         has_panels(factor) && can_quantise();
}

bool is_narrow(const Tensor& factor, int64_t rows) {
  constexpr int64_t kFewest = 16;
  static const bool able = has_dot_products() && can_multiply<BFloat16>();
  return able && rows >= kFewest && is_medium() && has_panels(factor);
}

}  // namespace casrnn
