// Beam search: the best continuations of all hypotheses.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

#include "multiply.h"

namespace casrnn {

// Subtracted from the log-probability of a word of the vocabulary; infinity forbids it.
struct Penalty {
  int64_t word;
  float amount;
};

// The `count` largest sums of a sentence's scores (B, R) and its log-probabilities, in descending
// order, of equal ones the first, NaN last: values and indices into (R, V), (B, count) each. The
// log-probabilities, log softmax(x · vocabulary + bias) less the penalties, (B, R, V), are not
// stored. x: (B * R, I); bias: (V) or undefined; contiguous, float32.
std::tuple<at::Tensor, at::Tensor> best_next(const Factor& vocabulary, const at::Tensor& x,
                                             const at::Tensor& bias, const at::Tensor& scores,
                                             int64_t count, const std::vector<Penalty>& penalties);

}  // namespace casrnn
