// Sentence-state LSTM: the elementwise parts of a step, forward and backward.
//
// T words, B sentences, H units, window w, K sentence nodes; M = 2w + 2 + K shares (i, l_w…l_1, f,
// r_1…r_w, s_1…s_K) and G = M + 2 gates (o, u behind). lengths: (B), int64. What lies behind a
// sentence's length is zero in every result. All tensors are dense.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace casrnn {

// gates (T, B, G*H): the products with the neighbours' states, become the activated gates; gx of the
// same shape and gg (B, G*H) are added to them. c (T, B, H), nodes (B, K, H). Returns the new h and c.
std::tuple<at::Tensor, at::Tensor> mix_words(const at::Tensor& gates, const at::Tensor& gx,
                                             const at::Tensor& gg, const at::Tensor& c,
                                             const at::Tensor& nodes, const at::Tensor& lengths);

// From the activated gates and the gradients of the new h and c, those of the gates' sums (T, B, G*H),
// of gg, c and nodes.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> mix_words_backward(
    const at::Tensor& gates, const at::Tensor& c, const at::Tensor& nodes, const at::Tensor& lengths,
    const at::Tensor& new_c, const at::Tensor& grad_h, const at::Tensor& grad_c);

// gates (T, B, K*H): the products of f's, become activated; gg (B, K*H) is added. With e = exp(f - 1),
// returns the sums over words of e * c and of e, (B, K, H) each.
std::tuple<at::Tensor, at::Tensor> gather_words(const at::Tensor& gates, const at::Tensor& gg,
                                                const at::Tensor& c, const at::Tensor& lengths);

// The gradients of the gates' sums, of gg and of c.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gather_words_backward(
    const at::Tensor& gates, const at::Tensor& c, const at::Tensor& lengths, const at::Tensor& grad_cells,
    const at::Tensor& grad_shares);

}  // namespace casrnn
