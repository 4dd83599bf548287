// Tensors as the loops see them: pointers, and shapes that are checked once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace casrnn {

template <class T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

// The part of `tensor`, (T, ...), that belongs to step t.
template <class T>
T* data(const at::Tensor& tensor, int64_t t) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() + t * tensor.stride(0) : nullptr;
}

// The kernels look at no bounds.
inline void check(const char* what, const at::Tensor& tensor, at::IntArrayRef shape) {
  TORCH_CHECK(!tensor.defined() || tensor.sizes() == shape, what, " has shape ", tensor.sizes(),
              "; expected ", shape);
}

}  // namespace casrnn
