// The loop over time, forward and backward, for all cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace casrnn {

// One layer in one direction. Undefined tensors stand for what a cell has not. All are dense and of one
// type (float or double); T steps, B rows, H hidden units, S cells of a mixture.
struct Layer {
  std::string name;      // of the kernel
  at::Tensor gates;      // (T, B, blocks * H): pre-activations, then activated gates, then gradients
  at::Tensor inner;      // (T, B, H)
  at::Tensor hs, cs;     // (T + 1, B, H), the initial state first
  at::Tensor weight_hh;  // (products * H, H)
  at::Tensor weight_t;   // its transpose, dense, if it is at hand
  at::Tensor extra;      // (T, B, H): the lower layer's c, or (T, B, S): mixture weights
  at::Tensor params;     // (rows, H)
};

// What comes into the backward (grad_hs, grad_cs: (T, B, H) or undefined; dh, dc: (B, H), of the last
// state) and what it makes. dh and dc become the gradients of the initial state.
struct Gradients {
  at::Tensor grad_hs, grad_cs, dh, dc;
  at::Tensor weight_hh, extra, params;
  bool wants_extra;
};

// Fills gates, inner, hs and cs of `layer`; gates come with W x + b, hs[0] and cs[0] set.
void forward(Layer& layer);

// Overwrites gates and inner by the gradients of their pre-activations.
void backward(Layer& layer, Gradients& grads);

}  // namespace casrnn
