// Products of floats with a matrix that is kept in panels of columns, in the order in which the kernels
// of oneDNN that torch offers (brgemm) read it. Either in floats or narrow, with both factors rounded to
// bfloat16 and sums in floats: torch's "medium" precision for processors with dot products of bfloat16.
// Torch itself makes use of those only with AMX, and converts the matrix for every product.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace casrnn {

// Whether torch has the kernels, this processor runs them, and `matrix` is of floats on the CPU.
bool has_panels(const at::Tensor& matrix);

// How many rows a single product must have for panels to be worth their making: `usual`, or more where
// torch's own product is in bfloat16.
int64_t rows_worth_panels(int64_t usual);

// Whether products of `rows` rows with `factor` are to be narrow: the switch is on, the processor can,
// and there are rows enough to be worth the conversion.
bool is_narrow(const at::Tensor& factor, int64_t rows);

// Rounded to bfloat16, to the nearest, ties to even.
void narrow_row(const float* from, int64_t size, at::BFloat16* to);

// sums (N) += the rows of x (rows, N), of bfloat16 and dense. Torch's own sum takes ten times as long.
void add_rows(const at::Tensor& x, const at::Tensor& sums);

// The matrix itself, or a copy where neither its rows nor its columns are dense, as those of expanded
// and of sliced ones.
at::Tensor with_dense_dimension(const at::Tensor& matrix);

class Panels {
 public:
  // matrix: (K, N), any strides. multiple: what K is rounded up to, with zeros.
  Panels(const at::Tensor& matrix, bool narrow, int64_t multiple = 1);

  // y (+)= x · M, with x (rows, K) and y (rows, N), which have dense rows.
  void run(const at::Tensor& x, const at::Tensor& y, bool add) const;

  // The same for any x with a dense dimension, rows [begin, end), by the calling thread alone; plus bias
  // (N) where there is one. Where they are narrow, x may be of bfloat16. Row `begin` becomes row `to` of y.
  void run(const at::Tensor& x, const at::Tensor& y, bool add, int64_t begin, int64_t end,
           const at::Tensor& bias, int64_t to) const;

 private:
  struct Panel {
    int64_t column, width;
  };

  void arrange(int64_t columns);
  void fill(const at::Tensor& matrix, int64_t panel) const;
  template <class T>
  const void* rows_for_product(const at::Tensor& x, int64_t row, int64_t count, int64_t& stride) const;
  void multiply(const void* x, int64_t x_stride, int64_t rows, float* y, int64_t y_stride, bool add,
                int64_t share, const float* bias) const;

  bool narrow_;
  int64_t inner_, depth_;  // K, and what it is rounded up to
  std::vector<Panel> panels_;
  std::vector<int64_t> shares_;  // the first panel of each thread's, and the end
  at::Tensor packed_;            // (panels, depth, kWidth); narrow: (panels, depth / 2, kWidth, 2)
};

}  // namespace casrnn
