// Products Y (+)= X · M with one matrix M, for many small X or a large one.
#pragma once

#include "vec.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "panels.h"

namespace casrnn {

// A matrix in memory with contiguous rows.
template <class T>
struct Rows {
  T* data;
  int64_t stride;
};

// kRows rows of Y (+)= X · M for the columns of kPanels panels, of which the last has `columns`
// columns.
template <class T, int kRows, int kPanels>
inline void tile(Rows<const T> x, const T* panels, int64_t inner, Rows<T> y, int64_t columns,
                 bool add) {
  using V = Vec<T>;
  constexpr int64_t width = V::size();
  V sums[kRows][kPanels];
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPanels; ++p) sums[r][p] = V(T(0));
  for (int64_t k = 0; k < inner; ++k) {
    V m[kPanels];
    for (int p = 0; p < kPanels; ++p) m[p] = V::loadu(panels + (p * inner + k) * width);
    for (int r = 0; r < kRows; ++r) {
      const V value(x.data[r * x.stride + k]);
      for (int p = 0; p < kPanels; ++p) sums[r][p] = fmadd(value, m[p], sums[r][p]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      T* out = y.data + r * y.stride + p * width;
      if (p + 1 < kPanels || columns == width) {
        (add ? sums[r][p] + V::loadu(out) : sums[r][p]).store(out);
      } else {
        (add ? sums[r][p] + V::loadu(out, columns) : sums[r][p]).store(out, columns);
      }
    }
  }
}

// A contiguous copy of a matrix. A transposed one is copied in blocks, in a third of contiguous()'s
// time.
template <class T>
at::Tensor dense_copy(const at::Tensor& matrix) {
  if (matrix.stride(0) != 1) return matrix.contiguous();
  constexpr int64_t kBlock = 32;
  const int64_t rows = matrix.size(0), columns = matrix.size(1), stride = matrix.stride(1);
  at::Tensor copy = at::empty({rows, columns}, matrix.options());
  const T* from = matrix.template const_data_ptr<T>();
  T* to = copy.template mutable_data_ptr<T>();
  for (int64_t first_c = 0; first_c < columns; first_c += kBlock)
    for (int64_t first_r = 0; first_r < rows; first_r += kBlock)
      for (int64_t r = first_r; r < std::min(first_r + kBlock, rows); ++r)
        for (int64_t c = first_c; c < std::min(first_c + kBlock, columns); ++c)
          to[r * columns + c] = from[c * stride + r];
  return copy;
}

// Products with a fixed matrix. Large ones use Panels, or ATen. Small ones, for which a call costs
// more than the arithmetic, are a loop over M packed in panels of one vector's width, padded with
// zeros.
template <class T>
class Product {
 public:
  // matrix: (K, N), any strides. rows: the maximum of an X. many: whether there will be many X.
  // inference: whether the product may be quantised.
  Product(at::Tensor matrix, int64_t rows, bool many, bool inference = false)
      : matrix_(std::move(matrix)), inner_(matrix_.size(0)), columns_(matrix_.size(1)) {
    constexpr int64_t kMany = 32;  // rows from which a copy of the matrix pays
    const bool quantised = inference && is_quantised(matrix_);
    small_ = !quantised && is_small(matrix_, rows);
    if (small_) pack();
    else if (quantised) wide_.emplace(matrix_, Precision::kInt8);
    else if ((many || rows >= rows_worth_panels(kMany)) && has_panels(matrix_))
      wide_.emplace(matrix_, is_narrow(matrix_, rows) ? Precision::kBFloat16 : Precision::kFloat);
    else if (many)
      matrix_ = dense_copy<T>(matrix_);  // products with a transposed view take 1.5 times as long
  }

  static bool is_small(const at::Tensor& matrix, int64_t rows) {
    return rows * matrix.numel() <= 32 * 1024;
  }

  // y (+)= xs[t] · M for xs (T, rows, K) and y (rows, N), whose rows are contiguous.
  void run(const at::Tensor& xs, int64_t t, const at::Tensor& y, bool add) const {
    // No view: it would take a good part of the time of a small product.
    if (small_)
      run_small(xs.template const_data_ptr<T>() + t * xs.stride(0), xs.stride(1), y, y.size(0),
                add);
    else run(xs.select(0, t), y, add);
  }

  // The first `count` rows of y (+)= x[first : first + count] · M.
  void run(const at::Tensor& x, int64_t first, int64_t count, const at::Tensor& y, bool add) const {
    if (small_)
      run_small(x.template const_data_ptr<T>() + first * x.stride(0), x.stride(0), y, count, add);
    else run(x.narrow(0, first, count), y.narrow(0, 0, count), add);
  }

  // y (+)= x · M for x (at most `rows`, K) and y, whose rows are contiguous.
  void run(const at::Tensor& x, at::Tensor y, bool add) const {
    if (small_) run_small(x.template const_data_ptr<T>(), x.stride(0), y, y.size(0), add);
    else if (wide_) wide_->run(x, y, add);
    else if (add) at::addmm_out(y, y, x, matrix_);
    else at::mm_out(y, x, matrix_);
  }

 private:
  void pack() {
    constexpr int64_t width = Vec<T>::size();
    panels_ = (columns_ + width - 1) / width;
    packed_.assign(panels_ * inner_ * width, T(0));
    const T* source = matrix_.template const_data_ptr<T>();
    const int64_t down = matrix_.stride(0), across = matrix_.stride(1);
    for (int64_t n = 0; n < columns_; ++n) {
      T* to = packed_.data() + n / width * inner_ * width + n % width;
      for (int64_t k = 0; k < inner_; ++k) to[k * width] = source[k * down + n * across];
    }
  }

  void run_small(const T* x_data, int64_t x_stride, const at::Tensor& y_tensor, int64_t rows,
                 bool add) const {
    constexpr int64_t width = Vec<T>::size();
    const Rows<const T> x{x_data, x_stride};
    const Rows<T> y{y_tensor.template mutable_data_ptr<T>(), y_tensor.stride(0)};
    for (int64_t p = 0; p < panels_;) {
      const int64_t count = std::min<int64_t>(panels_ - p, 2);
      const int64_t last = std::min(width, columns_ - (p + count - 1) * width);
      const T* panel = packed_.data() + p * inner_ * width;
      const Rows<T> out{y.data + p * width, y.stride};
      if (count == 2) all_rows<2>(rows, x, panel, out, last, add);
      else all_rows<1>(rows, x, panel, out, last, add);
      p += count;
    }
  }

  template <int kPanels>
  void all_rows(int64_t rows, Rows<const T> x, const T* panel, Rows<T> y, int64_t last,
                bool add) const {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) some_rows<4, kPanels>(r, x, panel, y, last, add);
    for (; r + 2 <= rows; r += 2) some_rows<2, kPanels>(r, x, panel, y, last, add);
    if (r < rows) some_rows<1, kPanels>(r, x, panel, y, last, add);
  }

  template <int kRows, int kPanels>
  void some_rows(int64_t r, Rows<const T> x, const T* panel, Rows<T> y, int64_t last,
                 bool add) const {
    tile<T, kRows, kPanels>({x.data + r * x.stride, x.stride}, panel, inner_,
                            {y.data + r * y.stride, y.stride}, last, add);
  }

  at::Tensor matrix_;
  int64_t inner_, columns_, panels_ = 0;
  bool small_;
  std::vector<T> packed_;
  std::optional<Panels> wide_;
};

// The products of `steps` steps with `matrix`.
template <class T>
Product<T> step_product(at::Tensor matrix, int64_t rows, int64_t steps, bool inference = false) {
  return Product<T>(std::move(matrix), rows, steps > 1, inference);
}

}  // namespace casrnn
