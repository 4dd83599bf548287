#pragma once

#include "../base.h"

namespace casrnn {

// Blocks i f g o.
struct StackedLstm : Shape<4, 4> {
  static constexpr const char* kName = "stacked_lstm";
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
};

}  // namespace casrnn
