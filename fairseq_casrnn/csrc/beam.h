// Beam search: the best continuations of all hypotheses.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

#include "multiply.h"

namespace casrnn {

// The `count` largest of lprobs[b, r, v] + scores[b, r] for every b, in descending order, of equal
// ones the first: values and indices into (R, V), (B, count) each. lprobs: (B, R, V); scores: (B,
// R); contiguous, float32. NaN comes after all numbers.
std::tuple<at::Tensor, at::Tensor> best_sums(const at::Tensor& lprobs, const at::Tensor& scores,
                                             int64_t count);

// Subtracted from the log-probability of a word of the vocabulary; infinity forbids it.
struct Penalty {
  int64_t word;
  float amount;
};

// The same of log softmax(x · vocabulary + bias), less the penalties, which is not stored: x (B *
// R, I), bias (V) or undefined, float32.
std::tuple<at::Tensor, at::Tensor> best_next(const Factor& vocabulary, const at::Tensor& x,
                                             const at::Tensor& bias, const at::Tensor& scores,
                                             int64_t count, const std::vector<Penalty>& penalties);

}  // namespace casrnn
