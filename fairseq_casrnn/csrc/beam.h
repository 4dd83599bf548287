// The choice among all continuations of all hypotheses in beam search.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace casrnn {

// The `count` largest of lprobs[b, r, v] + scores[b, r] for every b, the largest first and of equal
// ones the first: values and indices into (R, V), (B, count) each. lprobs: (B, R, V); scores: (B, R);
// dense, float32. NaN is never chosen before a number.
std::tuple<at::Tensor, at::Tensor> best_sums(const at::Tensor& lprobs, const at::Tensor& scores,
                                             int64_t count);

}  // namespace casrnn
