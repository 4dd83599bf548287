// Log-probabilities of a vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

namespace casrnn {

// log softmax(x · weight + bias), (N, V), in one pass, for x (N, I), weight (I, V) and bias (V) or
// undefined, all float32. A row with NaN or +inf becomes NaN.
at::Tensor log_probs(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// What log softmax subtracts from each element of a row: first the largest, then the logarithm of
// the sum, for their own sum would be rounded to the precision of the larger one. The second is NaN
// if there is NaN or +inf.
struct Normaliser {
  float top, rest;
};

Normaliser normaliser(const float* x, int64_t size);

}  // namespace casrnn
