// Products of floats with a matrix that is packed in panels of columns, in the order in which
// oneDNN's kernels (brgemm, as torch exposes them) read it. In floats; or narrow: with both factors
// rounded to bfloat16 and sums in floats, which is torch's "medium" precision, on processors with
// dot products of bfloat16 (torch itself uses those only with AMX, and converts the matrix for
// every product); or quantised to 8 bits, symmetrically: the matrix with a scale for each column, x
// with one for each row (dynamically), sums exact, on processors with dot products of such integers
// (VNNI).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "processor.h"

namespace casrnn {

// sums (N) += the rows of x (rows, N), bfloat16, contiguous. Torch's own sum takes ten times as
// long.
void add_rows(const at::Tensor& x, const at::Tensor& sums);

// The matrix itself, or a copy if neither its rows nor its columns are contiguous, as in expanded
// and sliced ones.
at::Tensor with_dense_dimension(const at::Tensor& matrix);

class Panels {
 public:
  // matrix: (K, N), any strides. K is padded with zeros to a multiple of `multiple`.
  Panels(const at::Tensor& matrix, Precision precision, int64_t multiple = 1);

  // y (+)= x · M for x (rows, K) and y (rows, N), whose rows are contiguous.
  void run(const at::Tensor& x, const at::Tensor& y, bool add) const;

  // The same for rows [begin, end) of any x with a contiguous dimension, on the calling thread
  // only, plus bias (N) if defined. Products in bfloat16 accept x of that dtype. Row `begin` of the
  // result is written to row `to` of y.
  void run(const at::Tensor& x, const at::Tensor& y, bool add, int64_t begin, int64_t end,
           const at::Tensor& bias, int64_t to) const;

 private:
  struct Panel {
    int64_t column, width;
  };

  void arrange(int64_t columns);
  // x in the dtype and layout of products; `scales` of its rows if quantised.
  struct Operand {
    const void* x;
    int64_t stride;
    const float* scales;
  };

  int64_t rows_at_once() const;
  void fill(const at::Tensor& matrix, int64_t panel) const;
  void fill_quantised(const at::Tensor& matrix, int64_t panel) const;
  template <class T>
  Operand rows_for_product(const at::Tensor& x, int64_t row, int64_t count) const;
  void multiply(const Operand& x, int64_t rows, float* y, int64_t y_stride, bool add, int64_t share,
                const float* bias) const;
  void multiply_panel(const Operand& x, int64_t row, int64_t count, int64_t panel, float* out,
                      int64_t y_stride, bool add, const float* bias) const;

  Precision precision_;
  int64_t inner_, depth_;  // K, before and after padding
  std::vector<Panel> panels_;
  std::vector<int64_t> shares_;  // first panel of each thread, then their number
  at::Tensor packed_;  // (panels, depth, kWidth); (panels, depth / n, kWidth, n) in 4/n bytes
  at::Tensor scales_,
      offsets_;  // quantised: of each column (panels, kWidth); of sums, for unsigned x
};

}  // namespace casrnn
