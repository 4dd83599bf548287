// Cross entropy of a linear map with label smoothing, and its gradients, some rows at a time: the
// logits of all rows, in most models the largest tensor, are never stored.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace casrnn {

struct CrossEntropy {
  double smoothed = 0, plain = 0;   // sums over rows of the loss, and of -log softmax at the target
  std::array<at::Tensor, 3> grads;  // of the former, by x, weight and bias; undefined if not wanted
};

// x: (N, E); weight: (V, E); bias: (V), or undefined; logits are x · weightᵀ + bias. target: (N),
// int64; rows whose target is `pad` are not counted. With q = 1 - smoothing at the target and
// smoothing / (V - 1) elsewhere, the loss of a row is -Σ q log softmax(logits). wants: which
// gradients.
CrossEntropy cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& target, double smoothing, int64_t pad,
                           std::array<bool, 3> wants);

}  // namespace casrnn
