#include "vec.h"  // first: it chooses the instruction set

#include "panels.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "brgemm.h"
#include "conversions.h"
#include "parallel.h"

namespace casrnn {
namespace {

using at::BFloat16;
using at::Tensor;

constexpr int64_t kWidth = 64;  // columns of a panel
constexpr int64_t kRows = 64;   // of x at once: these and a panel fit in the cache
// The same for narrow products, which are so fast that reading a panel takes a part of the time;
// and for quantised ones, whose panels are a quarter as large, and whose sums shall stay in the
// cache.
constexpr int64_t kNarrowRows = 256, kQuantisedRows = 64;

at::ScalarType dtype(Precision precision) {
  if (precision == Precision::kInt8) return at::kChar;
  return precision == Precision::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

int64_t rounded(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// A matrix in memory with contiguous rows or columns. The stride of a dimension of size 1 is
// meaningless.
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
  void copy(int64_t row, int64_t column, int64_t rows, int64_t columns, T* to,
            int64_t stride) const {
    const T* from = data + row * down + column * across;
    if (across != 1) return transpose(from, across, columns, rows, to, stride);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(to + r * stride, from + r * down, columns * sizeof(T));
  }
};

// A buffer of the calling thread, which is kept.
template <class T, int kUse>
T* scratch(int64_t size) {
  thread_local std::vector<T> memory;
  if (int64_t(memory.size()) < size) memory.resize(size);
  return memory.data();
}

// A tile of sums of products of integers, (rows, kWidth), of which `width` columns are used.
struct Sums {
  const int32_t* sums;
  const int32_t* offsets;  // of each column
  const float* scales;     // of each column
  const float* x_scales;   // of each row
  int64_t rows, width;
};

// y (+)= what they mean (+ bias). A known width lets the compiler keep the columns' values in
// registers.
template <bool kAdd, bool kBias, int64_t kKnown>
void dequantise(const Sums& tile, float* __restrict y, int64_t y_stride,
                const float* __restrict bias) {
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

void add_rows(const Tensor& x, const Tensor& sums) {
  constexpr int64_t kBlock = 1024;  // sums at a time, to stay in the cache
  const int64_t rows = x.size(0), columns = x.size(1), blocks = (columns + kBlock - 1) / kBlock;
  const auto* from = reinterpret_cast<const uint16_t*>(x.const_data_ptr<BFloat16>());
  float* const to = sums.mutable_data_ptr<float>();
  parallel_chunks(num_chunks(blocks, rows * kBlock), blocks,
                  [&](int64_t, int64_t begin, int64_t end) {
                    for (int64_t first = begin * kBlock; first < std::min(end * kBlock, columns);
                         first += kBlock) {
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

Tensor with_dense_dimension(const Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const bool dense_rows = matrix.stride(1) == 1 && (rows == 1 || matrix.stride(0) >= columns);
  // A single row with gaps would look like contiguous columns: a stride of size 1 is meaningless.
  const bool dense_columns =
      rows > 1 && matrix.stride(0) == 1 && (columns == 1 || matrix.stride(1) >= rows);
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
  parallel_chunks(num_chunks(count, depth_ * kWidth), count,
                  [&](int64_t, int64_t begin, int64_t end) {
                    for (int64_t p = begin; p < end; ++p)
                      quantised ? fill_quantised(source, p) : fill(source, p);
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
                                  reinterpret_cast<float*>(to + first * kWidth), kWidth, width,
                                  padded / 2);
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

// y (+)= x · M (+ bias) for rows [row, row + count) and one panel; `out` is where they begin.
void Panels::multiply_panel(const Operand& x, int64_t row, int64_t count, int64_t panel, float* out,
                            int64_t y_stride, bool add, const float* bias) const {
  const auto [column, width] = panels_[panel];
  const int64_t at = panel * depth_ * kWidth, first = row * x.stride;
  if (bias) bias += column;
  if (precision_ == Precision::kInt8) {
    int32_t* const sums = scratch<int32_t, 8>(kQuantisedRows * kWidth);
    brgemm(count, width, depth_, x.stride, kWidth, kWidth, false,
           static_cast<const uint8_t*>(x.x) + first, packed_.const_data_ptr<int8_t>() + at, sums,
           true);
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
    brgemm(count, width, depth_, x.stride, kWidth, y_stride, add,
           static_cast<const BFloat16*>(x.x) + first, packed_.const_data_ptr<BFloat16>() + at, out,
           true);
  else
    brgemm(count, width, depth_, x.stride, kWidth, y_stride, add,
           static_cast<const float*>(x.x) + first, packed_.const_data_ptr<float>() + at, out,
           false);
  if (bias)
    for (int64_t r = 0; r < count; ++r)
      for (int64_t i = 0; i < width; ++i) out[r * y_stride + i] += bias[i];
}

// The same for the columns of one thread, whose x has the panels' dtype.
void Panels::multiply(const Operand& x, int64_t rows, float* y, int64_t y_stride, bool add,
                      int64_t share, const float* bias) const {
  const int64_t most = rows_at_once();
  for (int64_t row = 0; row < rows;) {
    // Kernels are compiled for a number of rows: it is split so that batches of all sizes share
    // them.
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

void Panels::run(const Tensor& x, const Tensor& y, bool add, int64_t begin, int64_t end,
                 const Tensor& bias, int64_t to) const {
  const bool halves = x.scalar_type() == at::kBFloat16;
  TORCH_CHECK(precision_ == Precision::kBFloat16 || !halves,
              "a product of bfloat16 that is not narrow");
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
