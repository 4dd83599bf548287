// Vectors of hidden units (at::vec), and functions of them for the cells.
#pragma once

// at::vec takes its instruction set from these macros; here they follow the compiler's own flags.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define CPU_CAPABILITY AVX512
#define CPU_CAPABILITY_AVX512
#elif defined(__AVX2__) && defined(__FMA__)
#define CPU_CAPABILITY AVX2
#define CPU_CAPABILITY_AVX2
#else
#define CPU_CAPABILITY DEFAULT
#define CPU_CAPABILITY_DEFAULT
#endif

#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cstdint>

namespace casrnn {

template <class T>
using Vec = at::vec::Vectorized<T>;

using at::vec::fmadd;

// Loads and stores n lanes, or all if kFull (n is then ignored).
template <class T, bool kFull>
struct Lanes {
  int64_t n;
  Vec<T> load(const T* p) const {
    if constexpr (kFull) return Vec<T>::loadu(p);
    return Vec<T>::loadu(p, n);
  }
  void store(T* p, Vec<T> v) const {
    if constexpr (kFull) v.store(p);
    else v.store(p, n);
  }
};

// The larger of two values, or a if one of them is NaN. A single instruction, while
// at::vec::maximum, which returns NaN if either is, takes four.
template <class T>
inline Vec<T> larger(Vec<T> a, Vec<T> b) {
  return at::vec::clamp_min(a, b);
}

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)

constexpr float kLog2E = 1.44269504f;
// Adding it to a number n of up to 2^22 rounds n to an integer, and n + 127, the exponent's bits of
// 2^n, then stand in the lowest bits of the sum.
constexpr float kRound = 12582912.0f + 127.0f;  // 1.5 * 2^23 + 127

inline Vec<float> power_of_two(Vec<float> shifted) {
  return at::vec::cast<float>(at::vec::cast<int32_t>(shifted) << Vec<int32_t>(23));
}

// exp(x) = scale + scale * rest, with scale a power of two and rest = exp(r) - 1 for the remainder
// r. Keeping the two apart keeps exp(x) - 1, hence tanh, exact to a few units near 0. |x| <= 87.
struct SplitExp {
  Vec<float> scale, rest;
};

inline SplitExp split_exp(Vec<float> x) {
  const Vec<float> shifted = fmadd(x, Vec<float>(kLog2E), Vec<float>(kRound));
  const Vec<float> n = shifted - Vec<float>(kRound);
  Vec<float> r = fmadd(n, Vec<float>(-0.693359375f), x);  // ln 2 in two parts
  r = fmadd(n, Vec<float>(2.12194440e-4f), r);
  // (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2: the coefficients of Cephes' expf.
  Vec<float> p(1.9875691500e-4f);
  p = fmadd(p, r, Vec<float>(1.3981999507e-3f));
  p = fmadd(p, r, Vec<float>(8.3334519073e-3f));
  p = fmadd(p, r, Vec<float>(4.1665795894e-2f));
  p = fmadd(p, r, Vec<float>(1.6666665459e-1f));
  p = fmadd(p, r, Vec<float>(5.0000001201e-1f));
  return {power_of_two(shifted), fmadd(p * r, r, r)};
}

// Four to five times as fast as Sleef's tanhf, with an absolute error below 2e-7. NaN stays NaN.
inline Vec<float> sigmoid(Vec<float> x) {
  x = at::vec::clamp(x, Vec<float>(-87.0f), Vec<float>(87.0f));
  const SplitExp e = split_exp(x.neg());
  return Vec<float>(1.0f) / (Vec<float>(1.0f) + fmadd(e.scale, e.rest, e.scale));
}

inline Vec<float> tanh(Vec<float> x) {
  x = at::vec::clamp(x, Vec<float>(-10.0f), Vec<float>(10.0f));  // 1 - tanh(10) is below 2^-24
  const SplitExp e = split_exp(x + x);
  const Vec<float> less_one = fmadd(e.scale, e.rest, e.scale - Vec<float>(1.0f));
  return less_one / (less_one + Vec<float>(2.0f));
}

// exp(x) for x <= 0, with an absolute error below 2e-7, in 11 instructions; below -86 it is
// exp(-86), the order of the smallest normal numbers. exp(0) is 1, and NaN stays NaN.
inline Vec<float> exp_of_negative(Vec<float> x) {
  x = larger(x, Vec<float>(-86.0f));
  const Vec<float> shifted = fmadd(x, Vec<float>(kLog2E), Vec<float>(kRound));
  const Vec<float> f = at::vec::fmsub(x, Vec<float>(kLog2E), shifted - Vec<float>(kRound));
  // 2^f on |f| <= 1/2: of polynomials with p(0) = 1, the one of the smallest relative error,
  // 9.1e-8 at most.
  Vec<float> p(1.326472814e-3f);
  p = fmadd(p, f, Vec<float>(9.671512966e-3f));
  p = fmadd(p, f, Vec<float>(5.550733744e-2f));
  p = fmadd(p, f, Vec<float>(2.402224208e-1f));
  p = fmadd(p, f, Vec<float>(6.931469776e-1f));
  p = fmadd(p, f, Vec<float>(1.0f));
  return p * power_of_two(shifted);
}

#else

inline Vec<float> exp_of_negative(Vec<float> x) { return x.exp(); }
inline Vec<float> sigmoid(Vec<float> x) {
  return Vec<float>(1.0f) / (Vec<float>(1.0f) + x.neg().exp());
}
inline Vec<float> tanh(Vec<float> x) { return x.tanh(); }

#endif

inline Vec<double> exp_of_negative(Vec<double> x) { return x.exp(); }
inline Vec<double> sigmoid(Vec<double> x) {
  return Vec<double>(1.0) / (Vec<double>(1.0) + x.neg().exp());
}
inline Vec<double> tanh(Vec<double> x) { return x.tanh(); }

// The sum of all lanes.
template <class T>
inline T sum(Vec<T> v) {
  T lanes[Vec<T>::size()];
  v.store(lanes);
  T total = 0;
  for (const T lane : lanes) total += lane;
  return total;
}

// The largest of `size` values, at least one; any of them if one is NaN.
template <class T>
T largest(const T* x, int64_t size) {
  constexpr int64_t width = Vec<T>::size();
  T best = x[0];
  if (size >= width) {
    Vec<T> all = Vec<T>::loadu(x);
    for (int64_t i = width; i + width <= size; i += width) all = larger(all, Vec<T>::loadu(x + i));
    T lanes[width];
    all.store(lanes);
    best = *std::max_element(lanes, lanes + width);
  }
  for (int64_t i = size - size % width; i < size; ++i) best = std::max(best, x[i]);
  return best;
}

}  // namespace casrnn
