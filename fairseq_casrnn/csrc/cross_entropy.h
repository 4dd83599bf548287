// Cross entropy with label smoothing and its gradient, in one pass over the logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace casrnn {

// logits: (N, V), dense; target: (N), int64, rows of which with the value `pad` count for nothing.
// Of a row, with q = 1 - smoothing at the target and smoothing / (V - 1) elsewhere, the loss is
// -Σ q log softmax(logits). Returns the sums over rows of the loss and of -log softmax at the target,
// and where `wants_grad` the gradient of the former, (N, V).
std::tuple<double, double, at::Tensor> cross_entropy(const at::Tensor& logits, const at::Tensor& target,
                                                     double smoothing, int64_t pad, bool wants_grad);

}  // namespace casrnn
