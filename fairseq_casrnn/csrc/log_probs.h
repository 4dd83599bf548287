// Log-probabilities of a vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace casrnn {

// log softmax(x · weight + bias), (N, V), in one pass over the table: x (N, I), weight (I, V), bias (V)
// or undefined, all of floats. A row with NaN or +inf becomes NaN. And whether there is any such row.
std::tuple<at::Tensor, bool> log_probs(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace casrnn
