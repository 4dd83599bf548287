// Rows of floats rounded to bfloat16 or quantised to 8 bits, and transposed.
#pragma once

#include "vec.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace casrnn {

// A float rounded to bfloat16, to nearest, ties to even: its bits are the lower half of the result.
inline uint32_t narrowed(uint32_t bits) {
  const uint32_t result = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : result;  // NaN stays NaN
}

// Rounds to bfloat16, to nearest, ties to even. The processor's own conversion flushes numbers
// below 1e-38 to zero.
inline void narrow_row(const float* from, int64_t size, at::BFloat16* to) {
  const auto* bits = reinterpret_cast<const uint32_t*>(from);
  auto* out = reinterpret_cast<uint16_t*>(to);
  int64_t i = 0;
#if defined(__AVX512BF16__)
  for (; i + 32 <= size; i += 32) {
    const auto both =
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i));
    _mm512_storeu_si512(out + i, reinterpret_cast<const __m512i&>(both));
  }
#endif
  for (; i < size; ++i) out[i] = static_cast<uint16_t>(narrowed(bits[i]));
}

// Rounds rows of `size` elements, padded with zeros to `depth`, the stride in `to`.
inline void narrow_rows(const float* from, int64_t stride, int64_t rows, int64_t size,
                        int64_t depth, at::BFloat16* to) {
  for (int64_t r = 0; r < rows; ++r) {
    narrow_row(from + r * stride, size, to + r * depth);
    std::fill(to + r * depth + size, to + (r + 1) * depth, at::BFloat16(0.0f));
  }
}

// Interleaves the elements of two rows, as dot products of bfloat16 read them.
inline void pair_rows(const float* first, const float* second, int64_t size, at::BFloat16* to) {
  const auto* low = reinterpret_cast<const uint32_t*>(first);
  const auto* high = reinterpret_cast<const uint32_t*>(second);
  auto* out = reinterpret_cast<uint32_t*>(to);
  int64_t i = 0;
#if defined(__AVX512BF16__)
  alignas(64) uint16_t turns[32];
  for (int n = 0; n < 16; ++n) turns[2 * n] = n, turns[2 * n + 1] = n + 16;
  const __m512i order = _mm512_load_si512(turns);
  for (; i + 16 <= size; i += 16) {
    const auto both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(second + i), _mm512_loadu_ps(first + i));
    _mm512_storeu_si512(out + i,
                        _mm512_permutexvar_epi16(order, reinterpret_cast<const __m512i&>(both)));
  }
#endif
  for (; i < size; ++i) out[i] = narrowed(high[i]) << 16 | narrowed(low[i]);
}

// to[c][r] = from[r][c], for rows × columns elements.
inline void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                      float* to, int64_t to_stride) {
  at::vec::transpose_mxn<float>(from, from_stride, to, to_stride, rows, columns);
}

inline void transpose(const at::BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns,
                      at::BFloat16* to, int64_t to_stride) {
  constexpr int64_t kBlock = 32;  // the maximum of torch's function
  for (int64_t r = 0; r < rows; r += kBlock)
    for (int64_t c = 0; c < columns; c += kBlock)
      at::vec::transpose_mxn<at::BFloat16>(
          from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride,
          std::min(kBlock, rows - r), std::min(kBlock, columns - c));
}

inline constexpr float kLargest = 127;  // integers of 8 bits are used symmetrically
inline constexpr int32_t kZero = 128;   // x is multiplied unsigned: this is its zero

// The scale of `size` numbers: integers times it are they. NaN if one is not finite.
inline float scale_of(const float* x, int64_t size) {
  using V = Vec<float>;
  V most(0.0f);
  int64_t i = 0;
  for (; i + V::size() <= size; i += V::size())
    most = at::vec::maximum(most, V::loadu(x + i).abs());
  float lanes[V::size()], found = 0;
  most.store(lanes);
  auto consider = [&](float value) {
    if (!(value <= found)) found = value;  // keeps NaN
  };
  for (const float lane : lanes)
    if (std::isnan(found)) break;
    else consider(lane);
  for (; i < size && !std::isnan(found); ++i) consider(std::abs(x[i]));
  return found <= std::numeric_limits<float>::max() ? found / kLargest
                                                    : std::numeric_limits<float>::quiet_NaN();
}

// to[i] = x[i] / scale, to nearest, ties to even, plus `zero`. Zeros if the scale is zero or NaN.
template <class T>
void quantise(const float* x, int64_t size, float scale, int32_t zero, T* to) {
  const float inverse = scale > 0 ? 1 / scale : 0.0f;
  if (!(inverse > 0 && inverse <= std::numeric_limits<float>::max()))
    return (void)std::fill_n(to, size, T(zero));
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the lowest bits.
  constexpr float kShift = 12582912.0f;
  for (int64_t i = 0; i < size; ++i) {
    const float shifted = x[i] * inverse + kShift;
    int32_t bits;
    std::memcpy(&bits, &shifted, sizeof(bits));
    to[i] = static_cast<T>(bits + zero);
  }
}

// Rows of `size` elements, padded to `depth`, the stride in `to`: the padding is zero. Writes their
// scales.
inline void quantise_rows(const float* from, int64_t stride, int64_t rows, int64_t size,
                          int64_t depth, uint8_t* to, float* scales) {
  for (int64_t r = 0; r < rows; ++r) {
    scales[r] = scale_of(from + r * stride, size);
    quantise(from + r * stride, size, scales[r], kZero, to + r * depth);
    std::fill(to + r * depth + size, to + (r + 1) * depth, uint8_t(kZero));
  }
}

}  // namespace casrnn
