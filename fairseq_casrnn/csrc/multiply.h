// One product of two matrices.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace casrnn {

// What becomes of rows [begin, end) of a product while they are still in the thread's cache.
using RowsDone = std::function<void(int64_t begin, int64_t end)>;

// y = a · b, plus bias where there is one, y with dense rows:
// narrow where is_narrow, of large ones of floats with b in panels.
void multiply(at::Tensor y, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {},
              const RowsDone& done = {});

}  // namespace casrnn
