#pragma once

#include "../base.h"

namespace casrnn {

// Blocks i f g o v. Parameter rows: the factors of f ⊙ c_prev (1 - λ) and of v ⊙ lower (λ).
template <bool kTrained>
struct CasLstm : Shape<5, 5, 2, kTrained ? 2 : 0> {
  static constexpr const char* kName = kTrained ? "cas_lstm_trained" : "cas_lstm";
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
    inputs_backward(a, u);
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

}  // namespace casrnn
