#pragma once

#include "../base.h"

namespace casrnn {

// Blocks i f g o d, U for i f g o. Parameter rows: peepholes of d at the past and at the lower
// cell.
struct HighwayLstm : Shape<5, 4, 2> {
  static constexpr const char* kName = "highway_lstm";
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
    inputs_backward(a, u);
    const V f = a[1], d = a[4];
    a[1] = dsigmoid(u.dc * u.c_prev, f);
    a[4] = dsigmoid(u.dc * u.lower, d);
    u.dp[0] = a[4] * u.c_prev;
    u.dp[1] = a[4] * u.lower;
    u.d_lower = fmadd(u.dc, d, a[4] * u.p[1]);
    u.dc = fmadd(u.dc, f, a[4] * u.p[0]);
  }
};

}  // namespace casrnn
