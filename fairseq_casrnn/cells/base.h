// What every cell's kernel.h is made of: one step and its backward on one vector of hidden units. The tests
// compare each with the cell's step in the Python file beside it, which has the equations.
#pragma once

#include "../csrc/vec.h"

namespace casrnn {

constexpr int kMaxParams = 5;

// What a step reads and makes. A backward finds c, dh and dc (of h and c, complete) and leaves dc as the
// gradient of c_prev; dh stays, or becomes the gradient of h_prev that does not pass through U (GRU).
template <class V>
struct Unit {
  V h_prev, c_prev;
  V lower;          // the lower layer's c
  V candidate;      // the part of U h that is not simply added (GRU)
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

// The shape of a cell. kParams rows of elementwise parameters, of which the first kGrads get gradients.
template <int blocks, int products, int params = 0, int grads = params>
struct Shape {
  static constexpr int kBlocks = blocks, kProducts = products, kParams = params, kGrads = grads;
  static constexpr int kAdded = products;  // of the blocks of U h, how many are added to the gates
  static constexpr bool kCell = true, kLower = false, kCandidate = false;
  static constexpr bool kMixture = false;  // of cells, which runs over the rows itself
};

}  // namespace casrnn
