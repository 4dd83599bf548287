// Sentence-state LSTM: the parts of a step that are no products, forward and backward.
//
// H units, window w, K sentence nodes; M = 2w + 2 + K shares (i, l_w…l_1, f, r_1…r_w, s_1…s_K) and
// G = M + 2 gates (o, u behind). counts: how many of the B sentences, the longest first, have a word t, for
// every t; N words in all, those of word 0 first. All tensors are dense.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

namespace casrnn {

// h: (N, H). Returns each word's w neighbours on the left, itself and those on the right, zero beyond the
// sentence, (N, (2w+1)*H), and the sum of each sentence's words, (B, H).
std::tuple<at::Tensor, at::Tensor> look_around(const at::Tensor& h, int64_t window,
                                               const std::vector<int64_t>& counts);

// The gradient of h.
at::Tensor look_around_backward(const at::Tensor& d_around, const at::Tensor& d_total, int64_t window,
                                const std::vector<int64_t>& counts);

// gates (N, G*H): the products with the neighbours' states, become the activated gates; gx of the same
// shape and gg (B, G*H) are added to them. c (N, H), nodes (B, K, H). Returns the new h and c.
std::tuple<at::Tensor, at::Tensor> mix_words(const at::Tensor& gates, const at::Tensor& gx,
                                             const at::Tensor& gg, const at::Tensor& c,
                                             const at::Tensor& nodes, const std::vector<int64_t>& counts);

// From the activated gates and the gradients of the new h and c, those of the gates' sums (N, G*H), of gg,
// c and nodes.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> mix_words_backward(
    const at::Tensor& gates, const at::Tensor& c, const at::Tensor& nodes, const at::Tensor& new_c,
    const at::Tensor& grad_h, const at::Tensor& grad_c, const std::vector<int64_t>& counts);

// gates (N, K*H): the products of f's, become activated; gg (B, K*H) is added. With e = exp(f - 1),
// returns the sums over words of e * c and of e, (B, K, H) each.
std::tuple<at::Tensor, at::Tensor> gather_words(const at::Tensor& gates, const at::Tensor& gg,
                                                const at::Tensor& c, const std::vector<int64_t>& counts);

// The gradients of the gates' sums, of gg and of c.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gather_words_backward(const at::Tensor& gates,
                                                                     const at::Tensor& c,
                                                                     const at::Tensor& grad_cells,
                                                                     const at::Tensor& grad_shares,
                                                                     const std::vector<int64_t>& counts);

}  // namespace casrnn
