// Log-probabilities of a vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace casrnn {

// log softmax(x · weight + bias), (N, V), in one pass, for x (N, I), weight (I, V) and bias (V) or undefined,
// all float32; and whether there is NaN. A row with NaN or +inf becomes NaN.
std::tuple<at::Tensor, bool> log_probs(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// log softmax of one row, in place. Returns whether it is free of NaN.
bool log_softmax(float* x, int64_t size);

}  // namespace casrnn
