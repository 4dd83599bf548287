// One product of two matrices.
#pragma once

#include <ATen/core/Tensor.h>

namespace casrnn {

// y = a · b, plus bias where there is one, y with dense rows:
// narrow where is_narrow, of large ones of floats with b in panels.
void multiply(at::Tensor y, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

}  // namespace casrnn
