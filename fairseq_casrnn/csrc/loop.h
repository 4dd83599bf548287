// The loop over time, forward and backward, for all cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace casrnn {

// One layer in one direction. Undefined tensors stand for what is not there. All are dense, unless said,
// and of one type (float or double); T steps, B rows, I inputs, H hidden units, S cells of a mixture;
// G = blocks * S * H gates, P = products * S * H columns of U h. Step t has the first rows[t] of the B
// rows, which are sequences from the longest to the shortest, without their padding; N rows in all steps.
struct Layer {
  std::string name;           // of the kernel
  std::vector<int64_t> rows;  // (T), from B on, none greater than the one before
  at::Tensor x;               // (N, I), or undefined when gates come with W x + b in them
  at::Tensor weight_ih_t;     // (I, G), any strides
  at::Tensor bias;            // (G)
  at::Tensor weight_hh_t;     // (H, P), any strides
  at::Tensor gates;           // (N, G): pre-activations, then activated gates, then gradients
  at::Tensor candidate;       // (N, H)
  at::Tensor hs, cs;          // (B + N, H), the initial state first
  at::Tensor side;            // (N, H): the lower layer's c, or (N, S): mixture weights
  at::Tensor params;          // (rows, H)
};

// What comes into the backward (grad_hs, grad_cs: (N, H) or undefined; dh, dc: (B, H), of the last
// state) and what it makes. dh and dc become the gradients of the initial state.
struct Gradients {
  at::Tensor grad_hs, grad_cs, dh, dc;
  at::Tensor x, weight_ih, bias, weight_hh, side, params;
  bool wants_x, wants_side;
};

// Fills hs and cs, in which the initial state is set, and gates and candidate, which are allocated here
// unless x is undefined. Where keep is false they hold nothing of use afterwards.
void forward(Layer& layer, bool keep);

// Overwrites gates and candidate by the gradients of their pre-activations.
void backward(Layer& layer, Gradients& grads);

}  // namespace casrnn
