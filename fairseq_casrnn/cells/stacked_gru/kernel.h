#pragma once

#include "../base.h"

namespace casrnn {

// Blocks r z n; U h of n is separate, as candidate. Parameter row: its bias.
struct StackedGru : Shape<3, 3, 1> {
  static constexpr const char* kName = "stacked_gru";
  static constexpr bool kCell = false, kCandidate = true;
  static constexpr int kAdded = 2;
  template <class V>
  static void forward(V* a, Unit<V>& u) {
    u.candidate = u.candidate + u.p[0];  // bias included, as the backward reads it
    a[0] = sigmoid(a[0]), a[1] = sigmoid(a[1]);
    a[2] = tanh(fmadd(a[0], u.candidate, a[2]));
    u.h = fmadd(a[1], u.h_prev - a[2], a[2]);
  }
  template <class V>
  static void backward(V* a, Unit<V>& u) {
    const V r = a[0], z = a[1], n = a[2];
    const V dh_prev = u.dh * z;
    a[1] = dsigmoid(u.dh * (u.h_prev - n), z);
    a[2] = dtanh(u.dh - dh_prev, n);
    a[0] = dsigmoid(a[2] * u.candidate, r);
    u.candidate = a[2] * r;
    u.dp[0] = u.candidate;
    u.dh = dh_prev;
  }
};

}  // namespace casrnn
