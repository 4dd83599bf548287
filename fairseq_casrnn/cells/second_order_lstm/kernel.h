#pragma once

#include <algorithm>
#include <vector>

#include "../../csrc/rows.h"
#include "../stacked_lstm/kernel.h"

namespace casrnn {

// S LSTM cells that read the same (h_prev, c_prev); their h and c are summed with weights alpha (B,
// S).
struct SecondOrderLstm : Shape<4, 4> {
  static constexpr const char* kName = "second_order_lstm";
  static constexpr bool kMixture = true;

  template <bool kFull, class T>
  static void forward_units(const Step<T>& s, int64_t row, int64_t j, int64_t n) {
    using V = Vec<T>;
    const Lanes<T, kFull> lanes{n};
    const int64_t at = row * s.size + j, block = kBlocks * s.size;
    const T* alpha = s.side + row * s.cells;
    Unit<V> u;
    u.c_prev = lanes.load(s.c_prev + at);
    V h(T(0)), c(T(0)), a[kBlocks];
    for (int64_t i = 0; i < s.cells; ++i) {
      const int64_t cell = (row * s.cells + i) * block + j;
      load_sums<kBlocks, kBlocks>(lanes, s.gates + cell, shifted(s.bias, i * block + j),
                                  s.products + cell, s.size, a);
      StackedLstm::forward(a, u);
      if (s.keep) store_gates<kBlocks>(lanes, s.gates + cell, s.size, a);
      h = fmadd(V(alpha[i]), u.h, h);
      c = fmadd(V(alpha[i]), u.c, c);
    }
    lanes.store(s.h + at, h);
    lanes.store(s.c + at, c);
  }

  // Adds to d_alpha, S vectors whose lanes are summed later.
  template <bool kFull, class T>
  static void backward_units(const Step<T>& s, int64_t row, int64_t j, int64_t n, T* d_alpha) {
    using V = Vec<T>;
    const Lanes<T, kFull> lanes{n};
    const int64_t at = row * s.size + j, block = kBlocks * s.size;
    const T* alpha = s.side + row * s.cells;
    V dh = lanes.load(s.dh + at), dc = lanes.load(s.dc + at), dc_prev(T(0)), a[kBlocks];
    if (s.grad_h) dh = dh + lanes.load(s.grad_h + at);
    if (s.grad_c) dc = dc + lanes.load(s.grad_c + at);
    Unit<V> u;
    u.c_prev = lanes.load(s.c_prev + at);
    for (int64_t i = 0; i < s.cells; ++i, d_alpha += V::size()) {
      T* gates = s.gates + (row * s.cells + i) * block + j;
      load_gates<kBlocks>(lanes, gates, s.size, a);
      u.c = fmadd(a[1], u.c_prev, a[0] * a[2]);
      u.h = a[3] * tanh(u.c);
      fmadd(dh, u.h, fmadd(dc, u.c, V::loadu(d_alpha))).store(d_alpha);
      u.dh = V(alpha[i]) * dh;
      u.dc = V(alpha[i]) * dc;
      StackedLstm::backward(a, u);
      store_gates<kBlocks>(lanes, gates, s.size, a);
      accumulate<kBlocks>(lanes, shifted(s.d_bias, i * block + j), s.size, a);
      dc_prev = dc_prev + u.dc;
    }
    lanes.store(s.dc + at, dc_prev);
  }

  template <class T>
  static void forward(const Step<T>& s, int64_t first_row, int64_t last_row) {
    constexpr int64_t width = Vec<T>::size();
    for (int64_t row = first_row; row < last_row; ++row) {
      int64_t j = 0;
      for (; j + width <= s.size; j += width) forward_units<true>(s, row, j, width);
      if (j < s.size) forward_units<false>(s, row, j, s.size - j);
    }
  }

  template <class T>
  static void backward(const Step<T>& s, int64_t first_row, int64_t last_row) {
    constexpr int64_t width = Vec<T>::size();
    std::vector<T> d_alpha(s.cells * width);
    for (int64_t row = first_row; row < last_row; ++row) {
      std::fill(d_alpha.begin(), d_alpha.end(), T(0));
      int64_t j = 0;
      for (; j + width <= s.size; j += width)
        backward_units<true>(s, row, j, width, d_alpha.data());
      if (j < s.size) backward_units<false>(s, row, j, s.size - j, d_alpha.data());
      if (!s.d_side) continue;
      for (int64_t i = 0; i < s.cells; ++i)
        s.d_side[row * s.cells + i] = sum(Vec<T>::loadu(d_alpha.data() + i * width));
    }
  }
};

}  // namespace casrnn
