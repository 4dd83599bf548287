// One product of two matrices.
#pragma once

#include <ATen/core/Tensor.h>

namespace casrnn {

// y = a · b, plus bias where there is one, for matrices with one dense dimension, y with dense rows:
// narrow where is_narrow, of large ones of floats with b packed.
void multiply(at::Tensor y, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

}  // namespace casrnn
