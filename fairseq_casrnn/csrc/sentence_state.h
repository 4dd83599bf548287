// Sentence-state LSTM: the elementwise parts of a step, forward and backward.
//
// H units, window w, K sentence nodes; M = 2w + 2 + K gates of the softmax (i, l_w…l_1, f, r_1…r_w,
// s_1…s_K), called shares here, and G = M + 2 gates (then o, u). Sentences are sorted, the longest
// first; counts[t] of the B have a word t. The rows of the N words are those of word 0, then word
// 1, …. Tensors are contiguous.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

namespace casrnn {

// h: (N, H). Returns the concatenation of h of the words i-w, …, i+w, zero beyond the sentence, (N,
// (2w+1)*H), and the sum of each sentence's words, (B, H).
std::tuple<at::Tensor, at::Tensor> window_concat(const at::Tensor& h, int64_t window,
                                                 const std::vector<int64_t>& counts);

// The gradient of h.
at::Tensor window_concat_backward(const at::Tensor& d_around, const at::Tensor& d_total,
                                  int64_t window, const std::vector<int64_t>& counts);

// gates (N, G*H) come in as the products with the neighbours' states; gx (N, G*H) and gg (B, G*H)
// are added, and they become the activated gates. c (N, H), nodes (B, K, H). Returns the new h and
// c.
std::tuple<at::Tensor, at::Tensor> mix_words(const at::Tensor& gates, const at::Tensor& gx,
                                             const at::Tensor& gg, const at::Tensor& c,
                                             const at::Tensor& nodes,
                                             const std::vector<int64_t>& counts);

// Given the activated gates and the gradients of the new h and c, returns those of the
// pre-activations (N, G*H), of gg, c and nodes.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> mix_words_backward(
    const at::Tensor& gates, const at::Tensor& c, const at::Tensor& nodes, const at::Tensor& new_c,
    const at::Tensor& grad_h, const at::Tensor& grad_c, const std::vector<int64_t>& counts);

// gates (N, K*H) come in as U_f h; gg (B, K*H) is added, and they become the activated f. Returns
// the sums over words of e * c and of e = exp(f - 1), (B, K, H) each.
std::tuple<at::Tensor, at::Tensor> gather_words(const at::Tensor& gates, const at::Tensor& gg,
                                                const at::Tensor& c,
                                                const std::vector<int64_t>& counts);

// The gradients of the pre-activations, of gg and of c.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gather_words_backward(
    const at::Tensor& gates, const at::Tensor& c, const at::Tensor& grad_cells,
    const at::Tensor& grad_shares, const std::vector<int64_t>& counts);

}  // namespace casrnn
