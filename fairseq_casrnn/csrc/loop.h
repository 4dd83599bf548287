// The loop over time, forward and backward, for all cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace casrnn {

// One layer in one direction. Missing tensors are undefined; the others are contiguous, unless
// noted, and of one dtype (float or double). T steps, B rows, I inputs, H hidden units, S cells of
// a mixture; G = blocks * S * H gates, P = products * S * H columns of U h. Sequences are sorted,
// the longest first, and have no padding: step t has the first rows[t] of the B rows; all steps
// together have N rows.
struct Layer {
  std::string name;           // of the kernel
  std::vector<int64_t> rows;  // (T), beginning with B, not ascending
  at::Tensor x;               // (N, I), or undefined if gates come in as W x + b
  at::Tensor weight_ih_t;     // (I, G), any strides
  at::Tensor bias;            // (G)
  at::Tensor weight_hh_t;     // (H, P), any strides
  at::Tensor gates;           // (N, G): pre-activations, then activated gates, then gradients
  at::Tensor candidate;       // (N, H)
  at::Tensor hs, cs;          // (B + N, H), the initial state first
  at::Tensor side;            // (N, H): the lower layer's c, or (N, S): mixture weights
  at::Tensor params;          // (rows, H)
};

// Gradients. Inputs are grad_hs and grad_cs, (N, H) or undefined, and dh and dc, (B, H), of the
// last state, which become those of the initial state; the others are results.
struct Gradients {
  at::Tensor grad_hs, grad_cs, dh, dc;
  at::Tensor x, weight_ih, bias, weight_hh, side, params;
  bool wants_x, wants_side;
};

// Fills hs and cs, which hold the initial state, and gates and candidate, which are allocated here
// unless x is undefined. Unless keep, gates and candidate are undefined afterwards.
void forward(Layer& layer, bool keep);

// Overwrites gates and candidate with the gradients of their pre-activations.
void backward(Layer& layer, Gradients& grads);

}  // namespace casrnn
