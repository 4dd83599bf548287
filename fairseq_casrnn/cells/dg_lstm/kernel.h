#pragma once

#include "../base.h"

namespace casrnn {

// Blocks i f g o, and d where kDepth. Parameter rows: peepholes of i, f, o, then those of d.
template <bool kDepth>
struct DgLstm : Shape<kDepth ? 5 : 4, 4, kDepth ? 5 : 3> {
  static constexpr const char* kName = kDepth ? "dg_lstm" : "dg_lstm_bottom";
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
    inputs_backward(a, u);
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

}  // namespace casrnn
