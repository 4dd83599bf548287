#include "vec.h"  // first: it chooses the instruction set

#include "panels.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "parallel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace casrnn {
namespace {

using at::BFloat16;
using at::Tensor;

constexpr int64_t kWidth = 64;  // columns of a panel
constexpr int64_t kRows = 64;   // of x at once: these and a panel fit in the cache
// The same for narrow products, which are so fast that reading a panel takes a part of the time; and for
// quantised ones, whose panels are a quarter as large, and whose sums shall stay in the cache.
constexpr int64_t kNarrowRows = 256, kQuantisedRows = 64;

#if defined(CPUBLAS_BRGEMM_F32F32F32) && defined(CPUBLAS_BRGEMM_BF16BF16F32) && \
    defined(CPUBLAS_BRGEMM_U8I8I32)
using at::native::cpublas::brgemm;
using at::native::cpublas::brgemm_release;
#else
template <class A, class B, class C>
void brgemm(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, const A*, const B*, C*, bool) {
  TORCH_CHECK(false, "this torch has no brgemm");
}
void brgemm_release(bool) {}
#endif

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

// The depth of products is padded to a multiple of this: 64 bytes in AMX's tiles, 4 in dot products.
int64_t depth_multiple(Precision precision) {
  if (precision == Precision::kFloat) return 1;
  static const int64_t bytes = has_amx() ? 64 : 4;
  return precision == Precision::kInt8 ? bytes : bytes / 2;
}

at::ScalarType dtype(Precision precision) {
  if (precision == Precision::kInt8) return at::kChar;
  return precision == Precision::kBFloat16 ? at::kBFloat16 : at::kFloat;
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

int64_t rounded(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

// A float rounded to bfloat16, to nearest, ties to even: its bits are the lower half of the result.
inline uint32_t narrowed(uint32_t bits) {
  const uint32_t result = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : result;  // NaN stays NaN
}

}  // namespace

// The processor's own conversion flushes numbers below 1e-38 to zero.
void narrow_row(const float* from, int64_t size, BFloat16* to) {
  const auto* bits = reinterpret_cast<const uint32_t*>(from);
  auto* out = reinterpret_cast<uint16_t*>(to);
  int64_t i = 0;
#if defined(__AVX512BF16__)
  for (; i + 32 <= size; i += 32) {
    const auto both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i));
    _mm512_storeu_si512(out + i, reinterpret_cast<const __m512i&>(both));
  }
#endif
  for (; i < size; ++i) out[i] = static_cast<uint16_t>(narrowed(bits[i]));
}

void add_rows(const Tensor& x, const Tensor& sums) {
  constexpr int64_t kBlock = 1024;  // sums at a time, to stay in the cache
  const int64_t rows = x.size(0), columns = x.size(1), blocks = (columns + kBlock - 1) / kBlock;
  const auto* from = reinterpret_cast<const uint16_t*>(x.const_data_ptr<BFloat16>());
  float* const to = sums.mutable_data_ptr<float>();
  parallel_chunks(num_chunks(blocks, rows * kBlock), blocks, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t first = begin * kBlock; first < std::min(end * kBlock, columns); first += kBlock) {
      const int64_t count = std::min(kBlock, columns - first);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < count; ++i) {
          const uint32_t bits = uint32_t(from[r * columns + first + i]) << 16;
          float value;
          std::memcpy(&value, &bits, sizeof(value));
          to[first + i] += value;
        }
    }
  });
}

namespace {

// Rounds rows of `size` elements, padded with zeros to `depth`, the stride in `to`.
void narrow_rows(const float* from, int64_t stride, int64_t rows, int64_t size, int64_t depth, BFloat16* to) {
  for (int64_t r = 0; r < rows; ++r) {
    narrow_row(from + r * stride, size, to + r * depth);
    std::fill(to + r * depth + size, to + (r + 1) * depth, BFloat16(0.0f));
  }
}

// Interleaves the elements of two rows, as dot products of bfloat16 read them.
void pair_rows(const float* first, const float* second, int64_t size, BFloat16* to) {
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
    _mm512_storeu_si512(out + i, _mm512_permutexvar_epi16(order, reinterpret_cast<const __m512i&>(both)));
  }
#endif
  for (; i < size; ++i) out[i] = narrowed(high[i]) << 16 | narrowed(low[i]);
}

// to[c][r] = from[r][c], for rows × columns elements.
void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
               int64_t to_stride) {
  at::vec::transpose_mxn<float>(from, from_stride, to, to_stride, rows, columns);
}

void transpose(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, BFloat16* to,
               int64_t to_stride) {
  constexpr int64_t kBlock = 32;  // the maximum of torch's function
  for (int64_t r = 0; r < rows; r += kBlock)
    for (int64_t c = 0; c < columns; c += kBlock)
      at::vec::transpose_mxn<BFloat16>(from + r * from_stride + c, from_stride, to + c * to_stride + r,
                                       to_stride, std::min(kBlock, rows - r), std::min(kBlock, columns - c));
}

constexpr float kLargest = 127;  // integers of 8 bits are used symmetrically
constexpr int32_t kZero = 128;   // x is multiplied unsigned: this is its zero

// The scale of `size` numbers: integers times it are they. NaN if one is not finite.
float scale_of(const float* x, int64_t size) {
  using V = Vec<float>;
  V most(0.0f);
  int64_t i = 0;
  for (; i + V::size() <= size; i += V::size()) most = at::vec::maximum(most, V::loadu(x + i).abs());
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

// A matrix in memory with contiguous rows or columns. The stride of a dimension of size 1 is meaningless.
template <class T>
struct Matrix {
  const T* data;
  int64_t down, across;

  explicit Matrix(const Tensor& tensor)
      : data(tensor.const_data_ptr<T>()),
        down(tensor.size(0) == 1 ? tensor.size(1) : tensor.stride(0)),
        across(tensor.size(1) == 1 ? 1 : tensor.stride(1)) {
    TORCH_CHECK(down == 1 || across == 1, "a matrix without a dense dimension");
  }

  // Copies rows × columns elements from (row, column) on to `to`, which is contiguous.
  void copy(int64_t row, int64_t column, int64_t rows, int64_t columns, T* to, int64_t stride) const {
    const T* from = data + row * down + column * across;
    if (across != 1) return transpose(from, across, columns, rows, to, stride);
    for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * stride, from + r * down, columns * sizeof(T));
  }
};

// A buffer of the calling thread, which is kept.
template <class T, int kUse>
T* scratch(int64_t size) {
  thread_local std::vector<T> memory;
  if (int64_t(memory.size()) < size) memory.resize(size);
  return memory.data();
}

}  // namespace

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
  return int8_asked && factor.numel() > kSmallest && factor.size(0) <= kDeepest && has_panels(factor) &&
         can_quantise();
}

bool is_narrow(const Tensor& factor, int64_t rows) {
  constexpr int64_t kFewest = 16;
  static const bool able = has_dot_products() && can_multiply<BFloat16>();
  return able && rows >= kFewest && is_medium() && has_panels(factor);
}

Tensor with_dense_dimension(const Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const bool dense_rows = matrix.stride(1) == 1 && (rows == 1 || matrix.stride(0) >= columns);
  // A single row with gaps would look like contiguous columns: a stride of size 1 is meaningless.
  const bool dense_columns = rows > 1 && matrix.stride(0) == 1 && (columns == 1 || matrix.stride(1) >= rows);
  return dense_rows || dense_columns ? matrix : matrix.clone(at::MemoryFormat::Contiguous);
}

Panels::Panels(const Tensor& matrix, Precision precision, int64_t multiple)
    : precision_(precision),
      inner_(matrix.size(0)),
      depth_(rounded(inner_, rounded(multiple, depth_multiple(precision)))) {
  arrange(matrix.size(1));
  const Tensor source = with_dense_dimension(matrix);
  const int64_t count = panels_.size();
  packed_ = at::empty({count, depth_, kWidth}, matrix.options().dtype(dtype(precision)));
  const bool quantised = precision == Precision::kInt8;
  if (quantised) {
    scales_ = at::empty({count, kWidth}, matrix.options());
    offsets_ = at::empty({count, kWidth}, matrix.options().dtype(at::kInt));
  }
  parallel_chunks(num_chunks(count, depth_ * kWidth), count, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) quantised ? fill_quantised(source, p) : fill(source, p);
  });
}

// Every thread gets the same number of columns, up to a vector.
void Panels::arrange(int64_t columns) {
  const int64_t threads = std::clamp<int64_t>(columns / kWidth, 1, at::get_num_threads());
  for (int64_t share = 0; share < threads; ++share) {
    shares_.push_back(panels_.size());
    const int64_t begin = columns * share / threads / 16 * 16;
    const int64_t end = share + 1 < threads ? columns * (share + 1) / threads / 16 * 16 : columns;
    for (int64_t column = begin; column < end; column += kWidth)
      panels_.push_back({column, std::min(kWidth, end - column)});
  }
  shares_.push_back(panels_.size());
}

void Panels::fill(const Tensor& tensor, int64_t panel) const {
  const Matrix<float> matrix(tensor);
  const auto [column, width] = panels_[panel];
  if (precision_ == Precision::kFloat) {
    float* to = packed_.mutable_data_ptr<float>() + panel * depth_ * kWidth;
    matrix.copy(0, column, inner_, width, to, kWidth);
    std::fill(to + inner_ * kWidth, to + depth_ * kWidth, 0.0f);
    return;
  }
  BFloat16* to = packed_.mutable_data_ptr<BFloat16>() + panel * depth_ * kWidth;
  const float* from = matrix.data + column * matrix.across;
  if (matrix.across == 1) {
    const float zeros[kWidth] = {};
    for (int64_t k = 0; k < depth_; k += 2)
      pair_rows(k < inner_ ? from + k * matrix.down : zeros,
                k + 1 < inner_ ? from + (k + 1) * matrix.down : zeros, width, to + k * kWidth);
    return;
  }
  // Contiguous columns: pairs are adjacent already, and are moved like floats.
  constexpr int64_t kBlock = 64;  // rows at a time, to stay in the cache
  alignas(64) BFloat16 halves[kWidth * kBlock];
  for (int64_t first = 0; first < depth_; first += kBlock) {
    const int64_t count = std::clamp<int64_t>(inner_ - first, 0, kBlock),
                  padded = std::min(kBlock, depth_ - first);
    narrow_rows(from + first, matrix.across, width, count, padded, halves);
    at::vec::transpose_mxn<float>(reinterpret_cast<const float*>(halves), padded / 2,
                                  reinterpret_cast<float*>(to + first * kWidth), kWidth, width, padded / 2);
  }
}

void Panels::fill_quantised(const Tensor& tensor, int64_t panel) const {
  const Matrix<float> matrix(tensor);
  const auto [column, width] = panels_[panel];
  constexpr int64_t kTogether = 4;  // rows of a column in a dot product
  const float* from = matrix.data + column * matrix.across;
  int64_t stride = matrix.across;
  if (stride == 1) {
    float* const columns = scratch<float, 6>(kWidth * inner_);
    transpose(from, matrix.down, inner_, width, columns, inner_);
    from = columns, stride = inner_;
  }
  int8_t* const to = packed_.mutable_data_ptr<int8_t>() + panel * depth_ * kWidth;
  float* const scales = scales_.mutable_data_ptr<float>() + panel * kWidth;
  int32_t* const offsets = offsets_.mutable_data_ptr<int32_t>() + panel * kWidth;
  int8_t* const integers = scratch<int8_t, 7>(depth_);
  std::fill(integers + inner_, integers + depth_, int8_t(0));
  for (int64_t c = 0; c < width; ++c) {
    scales[c] = scale_of(from + c * stride, inner_);
    quantise(from + c * stride, inner_, scales[c], 0, integers);
    int32_t total = 0;
    for (int64_t k = 0; k < inner_; ++k) total += integers[k];
    offsets[c] = total * kZero;
    for (int64_t k = 0; k < depth_; k += kTogether)
      std::memcpy(to + k * kWidth + c * kTogether, integers + k, kTogether);
  }
}

namespace {

// Rows of `size` elements, padded to `depth`, the stride in `to`: the panels' padding is zero. Writes their
// scales.
void quantise_rows(const float* from, int64_t stride, int64_t rows, int64_t size, int64_t depth, uint8_t* to,
                   float* scales) {
  for (int64_t r = 0; r < rows; ++r) {
    scales[r] = scale_of(from + r * stride, size);
    quantise(from + r * stride, size, scales[r], kZero, to + r * depth);
    std::fill(to + r * depth + size, to + (r + 1) * depth, uint8_t(kZero));
  }
}

// A tile of sums of products of integers, (rows, kWidth), of which `width` columns are used.
struct Sums {
  const int32_t* sums;
  const int32_t* offsets;  // of each column
  const float* scales;     // of each column
  const float* x_scales;   // of each row
  int64_t rows, width;
};

// y (+)= what they mean (+ bias). A known width lets the compiler keep the columns' values in registers.
template <bool kAdd, bool kBias, int64_t kKnown>
void dequantise(const Sums& tile, float* __restrict y, int64_t y_stride, const float* __restrict bias) {
  const int64_t width = kKnown ? kKnown : tile.width;
  const int32_t* __restrict offsets = tile.offsets;
  const float* __restrict scales = tile.scales;
  for (int64_t r = 0; r < tile.rows; ++r) {
    const int32_t* __restrict sums = tile.sums + r * kWidth;
    float* __restrict out = y + r * y_stride;
    const float scale = tile.x_scales[r];
    for (int64_t i = 0; i < width; ++i) {
      float value = float(sums[i] - offsets[i]) * (scales[i] * scale);
      if constexpr (kBias) value += bias[i];
      if constexpr (kAdd) value += out[i];
      out[i] = value;
    }
  }
}

template <int64_t kKnown>
void dequantise(const Sums& tile, float* y, int64_t y_stride, bool add, const float* bias) {
  if (add && bias) return dequantise<true, true, kKnown>(tile, y, y_stride, bias);
  if (add) return dequantise<true, false, kKnown>(tile, y, y_stride, bias);
  if (bias) return dequantise<false, true, kKnown>(tile, y, y_stride, bias);
  dequantise<false, false, kKnown>(tile, y, y_stride, bias);
}

}  // namespace

// y (+)= x · M (+ bias) for rows [row, row + count) and one panel; `out` is where they begin.
void Panels::multiply_panel(const Operand& x, int64_t row, int64_t count, int64_t panel, float* out,
                            int64_t y_stride, bool add, const float* bias) const {
  const auto [column, width] = panels_[panel];
  const int64_t at = panel * depth_ * kWidth, first = row * x.stride;
  if (bias) bias += column;
  if (precision_ == Precision::kInt8) {
    int32_t* const sums = scratch<int32_t, 8>(kQuantisedRows * kWidth);
    brgemm(count, width, depth_, x.stride, kWidth, kWidth, false, static_cast<const uint8_t*>(x.x) + first,
           packed_.const_data_ptr<int8_t>() + at, sums, true);
    const Sums tile{sums,
                    offsets_.const_data_ptr<int32_t>() + panel * kWidth,
                    scales_.const_data_ptr<float>() + panel * kWidth,
                    x.scales + row,
                    count,
                    width};
    if (width == kWidth) dequantise<kWidth>(tile, out, y_stride, add, bias);
    else dequantise<0>(tile, out, y_stride, add, bias);
    return;
  }
  if (precision_ == Precision::kBFloat16)
    brgemm(count, width, depth_, x.stride, kWidth, y_stride, add, static_cast<const BFloat16*>(x.x) + first,
           packed_.const_data_ptr<BFloat16>() + at, out, true);
  else
    brgemm(count, width, depth_, x.stride, kWidth, y_stride, add, static_cast<const float*>(x.x) + first,
           packed_.const_data_ptr<float>() + at, out, false);
  if (bias)
    for (int64_t r = 0; r < count; ++r)
      for (int64_t i = 0; i < width; ++i) out[r * y_stride + i] += bias[i];
}

// The same for the columns of one thread, whose x has the panels' dtype.
void Panels::multiply(const Operand& x, int64_t rows, float* y, int64_t y_stride, bool add, int64_t share,
                      const float* bias) const {
  const int64_t most = rows_at_once();
  for (int64_t row = 0; row < rows;) {
    // Kernels are compiled for a number of rows: it is split so that batches of all sizes share them.
    int64_t count = std::min(most, rows - row);
    if (count > 4) count = count / 4 * 4;
    for (int64_t p = shares_[share]; p < shares_[share + 1]; ++p)
      multiply_panel(x, row, count, p, y + row * y_stride + panels_[p].column, y_stride, add, bias);
    row += count;
  }
  // AMX's tiles, which torch's own products configure differently.
  if (precision_ != Precision::kFloat) brgemm_release(true);
}

int64_t Panels::rows_at_once() const {
  if (precision_ == Precision::kFloat) return kRows;
  return precision_ == Precision::kBFloat16 ? kNarrowRows : kQuantisedRows;
}

void Panels::run(const Tensor& x, const Tensor& y, bool add) const {
  const int64_t rows = x.size(0), stride = x.stride(0);
  Operand operand{x.const_data_ptr(), stride, nullptr};
  const float* const data = x.const_data_ptr<float>();
  if (precision_ == Precision::kBFloat16) {
    BFloat16* const to = scratch<BFloat16, 1>(rows * depth_);
    parallel_chunks(num_chunks(rows, depth_), rows, [&](int64_t, int64_t begin, int64_t end) {
      narrow_rows(data + begin * stride, stride, end - begin, inner_, depth_, to + begin * depth_);
    });
    operand = {to, depth_, nullptr};
  } else if (precision_ == Precision::kInt8) {
    uint8_t* const to = scratch<uint8_t, 1>(rows * depth_);
    float* const scales = scratch<float, 1>(rows);
    parallel_chunks(num_chunks(rows, depth_), rows, [&](int64_t, int64_t begin, int64_t end) {
      quantise_rows(data + begin * stride, stride, end - begin, inner_, depth_, to + begin * depth_,
                    scales + begin);
    });
    operand = {to, depth_, scales};
  }
  const int64_t shares = shares_.size() - 1;
  constexpr int64_t kFewest = 1 << 19;  // multiplications; with fewer, waking a thread takes longer
  const bool alone = shares == 1 || rows * packed_.numel() < shares * kFewest;
  float* const out = y.mutable_data_ptr<float>();
  at::parallel_for(0, shares, alone ? shares : 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share)
      multiply(operand, rows, out, y.stride(0), add, share, nullptr);
  });
}

// Rows [row, row + count) of x in the dtype and layout of products.
template <class T>
Panels::Operand Panels::rows_for_product(const Tensor& x, int64_t row, int64_t count) const {
  const Matrix<T> matrix(x);
  const int64_t most = rows_at_once();
  const bool converted = precision_ != Precision::kFloat && std::is_same_v<T, float>;
  const T* from = matrix.data + row * matrix.down;
  int64_t stride = matrix.down;
  if (matrix.across != 1 || (depth_ != inner_ && !converted)) {
    T* const copy = scratch<T, 2>(most * depth_);
    matrix.copy(row, 0, count, inner_, copy, depth_);
    for (int64_t r = 0; r < count; ++r)
      std::fill(copy + r * depth_ + inner_, copy + (r + 1) * depth_, T(0.0f));
    from = copy;
    stride = depth_;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (precision_ == Precision::kBFloat16) {
      BFloat16* const halves = scratch<BFloat16, 3>(most * depth_);
      narrow_rows(from, stride, count, inner_, depth_, halves);
      return {halves, depth_, nullptr};
    }
    if (precision_ == Precision::kInt8) {
      uint8_t* const integers = scratch<uint8_t, 3>(most * depth_);
      float* const scales = scratch<float, 3>(most);
      quantise_rows(from, stride, count, inner_, depth_, integers, scales);
      return {integers, depth_, scales};
    }
  }
  return {from, stride, nullptr};
}

void Panels::run(const Tensor& x, const Tensor& y, bool add, int64_t begin, int64_t end, const Tensor& bias,
                 int64_t to) const {
  const bool halves = x.scalar_type() == at::kBFloat16;
  TORCH_CHECK(precision_ == Precision::kBFloat16 || !halves, "a product of bfloat16 that is not narrow");
  const float* const added = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  float* const out = y.mutable_data_ptr<float>() + (to - begin) * y.stride(0);
  const int64_t most = rows_at_once();
  for (int64_t row = begin; row < end; row += most) {
    const int64_t count = std::min(most, end - row);
    const Operand from =
        halves ? rows_for_product<BFloat16>(x, row, count) : rows_for_product<float>(x, row, count);
    for (size_t share = 0; share + 1 < shares_.size(); ++share)
      multiply(from, count, out + row * y.stride(0), y.stride(0), add, share, added);
  }
}

}  // namespace casrnn
