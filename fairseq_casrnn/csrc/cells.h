// The cells: one step and its backward on one vector of hidden units. The equations, with their sources,
// are those of fairseq_casrnn/cells; a kernel here is compared with its cell there by the tests.
#pragma once

#include "vec.h"

namespace casrnn {

constexpr int kMaxParams = 5;

// What a step reads and makes. A backward finds c, dh and dc (of h and c, complete) and leaves dc as the
// gradient of c_prev; dh stays, or becomes the gradient of h_prev that does not pass through U (GRU).
template <class V>
struct Unit {
  V h_prev, c_prev;
  V lower;          // the lower layer's c
  V inner;          // the part of U h that is not simply added (GRU)
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

// The shape of a cell. kParams rows of elementwise parameters, of which the first kGrads get gradients.
template <int blocks, int products, int params = 0, int grads = params>
struct Shape {
  static constexpr int kBlocks = blocks, kProducts = products, kParams = params, kGrads = grads;
  static constexpr int kAdded = products;  // of the blocks of U h, how many are added to the gates
  static constexpr bool kCell = true, kLower = false, kInner = false;
};

struct Lstm : Shape<4, 4> {
  template <class V>
  static void forward(V* a, Unit<V>& u) {
    a[0] = sigmoid(a[0]), a[1] = sigmoid(a[1]), a[2] = tanh(a[2]), a[3] = sigmoid(a[3]);
    u.c = fmadd(a[1], u.c_prev, a[0] * a[2]);
    u.h = a[3] * tanh(u.c);
  }
  template <class V>
  static void backward(V* a, Unit<V>& u) {
    output_backward(a[3], u);
    inputs_backward(a, u);
    const V f = a[1];
    a[1] = dsigmoid(u.dc * u.c_prev, f);
    u.dc = u.dc * f;
  }
  // Backward of i ⊙ g.
  template <class V>
  static void inputs_backward(V* a, const Unit<V>& u) {
    const V i = a[0], g = a[2];
    a[0] = dsigmoid(u.dc * g, i);
    a[2] = dtanh(u.dc * i, g);
  }
};

struct Normalized : Shape<4, 4> {
  template <class V>
  static void forward(V* a, Unit<V>& u) {
    a[0] = sigmoid(a[0]), a[1] = sigmoid(a[1]), a[2] = tanh(a[2]), a[3] = sigmoid(a[3]);
    // A softmax over the pair (i, f) is the logistic function of their difference.
    u.c = fmadd(sigmoid(a[0] - a[1]), a[2] - u.c_prev, u.c_prev);
    u.h = a[3] * tanh(u.c);
  }
  template <class V>
  static void backward(V* a, Unit<V>& u) {
    output_backward(a[3], u);
    const V i = a[0], f = a[1], g = a[2], share = sigmoid(i - f);
    const V d_difference = dsigmoid(u.dc * (g - u.c_prev), share);
    const V d_g = u.dc * share;
    a[0] = dsigmoid(d_difference, i);
    a[1] = dsigmoid(d_difference.neg(), f);
    a[2] = dtanh(d_g, g);
    u.dc = u.dc - d_g;
  }
};

// Blocks i f g o v. Parameter rows: the factors of f ⊙ c_prev (1 - λ) and of v ⊙ lower (λ).
template <bool kTrained>
struct Cas : Shape<5, 5, 2, kTrained ? 2 : 0> {
  static constexpr bool kLower = true;
  template <class V>
  static void forward(V* a, Unit<V>& u) {
    a[0] = sigmoid(a[0]), a[1] = sigmoid(a[1]), a[2] = tanh(a[2]), a[3] = sigmoid(a[3]);
    a[4] = sigmoid(a[4]);
    u.c = fmadd(a[0], a[2], fmadd(u.p[0] * a[1], u.c_prev, u.p[1] * a[4] * u.lower));
    u.h = a[3] * tanh(u.c);
  }
  template <class V>
  static void backward(V* a, Unit<V>& u) {
    output_backward(a[3], u);
    Lstm::inputs_backward(a, u);
    const V f = a[1], v = a[4];
    const V d_past = u.dc * u.p[0], d_below = u.dc * u.p[1];
    if constexpr (kTrained) {
      u.dp[0] = u.dc * f * u.c_prev;
      u.dp[1] = u.dc * v * u.lower;
    }
    a[1] = dsigmoid(d_past * u.c_prev, f);
    a[4] = dsigmoid(d_below * u.lower, v);
    u.dc = d_past * f;
    u.d_lower = d_below * v;
  }
};

// Blocks i f g o d, U for i f g o. Parameter rows: peepholes of d at the past and at the lower cell.
struct Highway : Shape<5, 4, 2> {
  static constexpr bool kLower = true;
  template <class V>
  static void forward(V* a, Unit<V>& u) {
    a[0] = sigmoid(a[0]), a[1] = sigmoid(a[1]), a[2] = tanh(a[2]), a[3] = sigmoid(a[3]);
    a[4] = sigmoid(fmadd(u.p[0], u.c_prev, fmadd(u.p[1], u.lower, a[4])));
    u.c = fmadd(a[0], a[2], fmadd(a[1], u.c_prev, a[4] * u.lower));
    u.h = a[3] * tanh(u.c);
  }
  template <class V>
  static void backward(V* a, Unit<V>& u) {
    output_backward(a[3], u);
    Lstm::inputs_backward(a, u);
    const V f = a[1], d = a[4];
    a[1] = dsigmoid(u.dc * u.c_prev, f);
    a[4] = dsigmoid(u.dc * u.lower, d);
    u.dp[0] = a[4] * u.c_prev;
    u.dp[1] = a[4] * u.lower;
    u.d_lower = fmadd(u.dc, d, a[4] * u.p[1]);
    u.dc = fmadd(u.dc, f, a[4] * u.p[0]);
  }
};

// Blocks i f g o, and d where kDepth. Parameter rows: peepholes of i, f, o, then those of d.
template <bool kDepth>
struct Peephole : Shape<kDepth ? 5 : 4, 4, kDepth ? 5 : 3> {
  static constexpr bool kLower = kDepth;
  template <class V>
  static void forward(V* a, Unit<V>& u) {
    a[0] = sigmoid(fmadd(u.p[0], u.c_prev, a[0]));
    a[1] = sigmoid(fmadd(u.p[1], u.c_prev, a[1]));
    a[2] = tanh(a[2]);
    u.c = fmadd(a[1], u.c_prev, a[0] * a[2]);
    if constexpr (kDepth) {
      a[4] = sigmoid(fmadd(u.p[3], u.c_prev, fmadd(u.p[4], u.lower, a[4])));
      u.c = fmadd(a[4], u.lower, u.c);
    }
    a[3] = sigmoid(fmadd(u.p[2], u.c, a[3]));
    u.h = a[3] * tanh(u.c);
  }
  template <class V>
  static void backward(V* a, Unit<V>& u) {
    output_backward(a[3], u);
    u.dc = fmadd(a[3], u.p[2], u.dc);
    Lstm::inputs_backward(a, u);
    const V f = a[1];
    a[1] = dsigmoid(u.dc * u.c_prev, f);
    u.dp[0] = a[0] * u.c_prev;
    u.dp[1] = a[1] * u.c_prev;
    u.dp[2] = a[3] * u.c;
    V dc_prev = fmadd(u.dc, f, fmadd(a[0], u.p[0], a[1] * u.p[1]));
    if constexpr (kDepth) {
      const V d = a[4];
      a[4] = dsigmoid(u.dc * u.lower, d);
      u.dp[3] = a[4] * u.c_prev;
      u.dp[4] = a[4] * u.lower;
      u.d_lower = fmadd(u.dc, d, a[4] * u.p[4]);
      dc_prev = fmadd(a[4], u.p[3], dc_prev);
    }
    u.dc = dc_prev;
  }
};

// Blocks r z n; U h of the candidate comes apart, as inner. Parameter row: its bias.
struct Gru : Shape<3, 3, 1> {
  static constexpr bool kCell = false, kInner = true;
  static constexpr int kAdded = 2;
  template <class V>
  static void forward(V* a, Unit<V>& u) {
    u.inner = u.inner + u.p[0];  // kept with its bias, for the backward
    a[0] = sigmoid(a[0]), a[1] = sigmoid(a[1]);
    a[2] = tanh(fmadd(a[0], u.inner, a[2]));
    u.h = fmadd(a[1], u.h_prev - a[2], a[2]);
  }
  template <class V>
  static void backward(V* a, Unit<V>& u) {
    const V r = a[0], z = a[1], n = a[2];
    const V dh_prev = u.dh * z;
    a[1] = dsigmoid(u.dh * (u.h_prev - n), z);
    a[2] = dtanh(u.dh - dh_prev, n);
    a[0] = dsigmoid(a[2] * u.inner, r);
    u.inner = a[2] * r;
    u.dp[0] = u.inner;
    u.dh = dh_prev;
  }
};

}  // namespace casrnn
