// Products of float matrices with their factors rounded to bfloat16: torch's "medium" precision for
// processors with dot products of bfloat16, of which torch itself makes use only with AMX.
#pragma once

#include <ATen/core/Tensor.h>

namespace casrnn {

// Whether products of `rows` rows with `factor` are to be narrow: the switch is on, the processor can,
// torch does not, and there are rows enough to be worth the conversion.
bool is_narrow(const at::Tensor& factor, int64_t rows);

// y = a · b, for matrices with one dense dimension, y with dense rows.
void multiply_narrow(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b);

// x · M for one M and many small X.
class NarrowProduct {
 public:
  // matrix: (K, N). rows: the most that an X has.
  NarrowProduct(const at::Tensor& matrix, int64_t rows);

  // y (+)= x · M, with x (rows, K) and y (rows, N).
  void run(const at::Tensor& x, const at::Tensor& y, bool add) const;

 private:
  at::Tensor matrix_;
  at::Tensor x_, y_;  // of bfloat16, with some rows to spare
};

}  // namespace casrnn
