// For the cells' kernel.h, which have one step and its backward on one vector of hidden units. The
// tests compare each with the cell's step in the Python file beside it, which has the equations.
#pragma once

#include "../csrc/vec.h"

namespace casrnn {

constexpr int kMaxParams = 5;

// Inputs and results of a step. A backward reads c, dh and dc (complete, of h and c); dc becomes
// the gradient of c_prev, and in cells without c dh that of h_prev without what comes through U
// (GRU).
template <class V>
struct Unit {
  V h_prev, c_prev;
  V lower;          // the lower layer's c
  V candidate;      // the block of U h that is not added to the gates (GRU)
  V p[kMaxParams];  // elementwise parameters, row by row
  V h, c;
  V dh, dc, d_lower;
  V dp[kMaxParams];
};

// Gradient of the pre-activation a, given that of y = σ(a) or y = tanh(a).
template <class V>
inline V dsigmoid(V dy, V y) {
  return dy * y * (V(1) - y);
}
template <class V>
inline V dtanh(V dy, V y) {
  return dy * (V(1) - y * y);
}

// Backward of h = o ⊙ tanh(c): adds to dc; o becomes the gradient of its pre-activation.
template <class V>
inline void output_backward(V& o, Unit<V>& u) {
  const V tanh_c = tanh(u.c);
  u.dc = u.dc + dtanh(u.dh * o, tanh_c);
  o = dsigmoid(u.dh * tanh_c, o);
}

// Backward of i ⊙ g, blocks 0 and 2: they become the gradients of their pre-activations.
template <class V>
inline void inputs_backward(V* a, const Unit<V>& u) {
  const V i = a[0], g = a[2];
  a[0] = dsigmoid(u.dc * g, i);
  a[2] = dtanh(u.dc * i, g);
}

// The shape of a cell. kParams rows of elementwise parameters, of which the first kGrads get
// gradients.
template <int blocks, int products, int params = 0, int grads = params>
struct Shape {
  static constexpr int kBlocks = blocks, kProducts = products, kParams = params, kGrads = grads;
  static constexpr int kAdded = products;  // how many blocks of U h are added to the gates
  static constexpr bool kCell = true, kLower = false, kCandidate = false;
  static constexpr bool kMixture = false;  // then the cell loops over rows itself
};

}  // namespace casrnn
