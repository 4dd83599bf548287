// Beam search: the best continuations of all hypotheses.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace casrnn {

// The `count` largest of lprobs[b, r, v] + scores[b, r] for every b, in descending order, of equal ones the
// first: values and indices into (R, V), (B, count) each. lprobs: (B, R, V); scores: (B, R); contiguous,
// float32. NaN comes after all numbers.
std::tuple<at::Tensor, at::Tensor> best_sums(const at::Tensor& lprobs, const at::Tensor& scores,
                                             int64_t count);

}  // namespace casrnn
