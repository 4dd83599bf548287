#pragma once

#include "../base.h"

namespace casrnn {

// Blocks i f g o.
struct NormalizedLstm : Shape<4, 4> {
  static constexpr const char* kName = "normalized_lstm";
  template <class V>
  static void forward(V* a, Unit<V>& u) {
    a[0] = sigmoid(a[0]), a[1] = sigmoid(a[1]), a[2] = tanh(a[2]), a[3] = sigmoid(a[3]);
    // A softmax over two values is the sigmoid of their difference.
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

}  // namespace casrnn
