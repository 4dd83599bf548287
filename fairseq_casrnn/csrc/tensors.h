// Pointers to tensors for the loops, and checks of shapes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace casrnn {

template <class T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

// Step t of `tensor` (T, ...).
template <class T>
T* data(const at::Tensor& tensor, int64_t t) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() + t * tensor.stride(0) : nullptr;
}

// The kernels do not check bounds.
inline void check(const char* what, const at::Tensor& tensor, at::IntArrayRef shape) {
  TORCH_CHECK(!tensor.defined() || tensor.sizes() == shape, what, " has shape ", tensor.sizes(),
              "; expected ", shape);
}

}  // namespace casrnn
