// Runs a cell's maths (cells.h) over the rows of a batch.
#pragma once

#include <c10/util/Exception.h>

#include <vector>

#include "cells.h"
#include "kernels.h"

namespace casrnn {

// The sums of kBlocks gates of some units: W x, the bias where it is not in it yet, and U h for the
// first kAdded of them.
template <int kBlocks, int kAdded, class L, class T>
inline void load_sums(const L& lanes, const T* gates, const T* bias, const T* products, int64_t size,
                      Vec<T>* a) {
  for (int k = 0; k < kBlocks; ++k) {
    a[k] = lanes.load(gates + k * size);
    if (bias) a[k] = a[k] + lanes.load(bias + k * size);
    if (k < kAdded) a[k] = a[k] + lanes.load(products + k * size);
  }
}

template <int kBlocks, class L, class T>
inline void load_gates(const L& lanes, const T* gates, int64_t size, Vec<T>* a) {
  for (int k = 0; k < kBlocks; ++k) a[k] = lanes.load(gates + k * size);
}

template <int kBlocks, class L, class T>
inline void store_gates(const L& lanes, T* gates, int64_t size, const Vec<T>* a) {
  for (int k = 0; k < kBlocks; ++k) lanes.store(gates + k * size, a[k]);
}

// sums += a, where there are sums to make.
template <int kBlocks, class L, class T>
inline void accumulate(const L& lanes, T* sums, int64_t size, const Vec<T>* a) {
  if (!sums) return;
  for (int k = 0; k < kBlocks; ++k) {
    T* sum = sums + k * size;
    lanes.store(sum, lanes.load(sum) + a[k]);
  }
}

template <class T>
inline T* shifted(T* start, int64_t by) {
  return start ? start + by : nullptr;
}

template <class Cell, bool kFull, class T>
inline void forward_units(const Step<T>& s, int64_t row, int64_t j, int64_t n) {
  using V = Vec<T>;
  const Lanes<T, kFull> lanes{n};
  const int64_t at = row * s.size + j;
  T* gates = s.gates + row * Cell::kBlocks * s.size + j;
  const T* products = s.products + row * Cell::kProducts * s.size + j;
  V a[Cell::kBlocks];
  Unit<V> u;
  load_sums<Cell::kBlocks, Cell::kAdded>(lanes, gates, shifted(s.bias, j), products, s.size, a);
  load_gates<Cell::kParams>(lanes, s.params + j, s.size, u.p);
  if constexpr (Cell::kCell) u.c_prev = lanes.load(s.c_prev + at);
  else u.h_prev = lanes.load(s.h_prev + at);
  if constexpr (Cell::kLower) u.lower = lanes.load(s.extra + at);
  if constexpr (Cell::kInner) u.inner = lanes.load(products + Cell::kAdded * s.size);
  Cell::forward(a, u);
  lanes.store(s.h + at, u.h);
  if constexpr (Cell::kCell) lanes.store(s.c + at, u.c);
  if (!s.keep) return;
  store_gates<Cell::kBlocks>(lanes, gates, s.size, a);
  if constexpr (Cell::kInner) lanes.store(s.inner + at, u.inner);
}

template <class Cell, bool kFull, class T>
inline void backward_units(const Step<T>& s, int64_t row, int64_t j, int64_t n) {
  using V = Vec<T>;
  const Lanes<T, kFull> lanes{n};
  const int64_t at = row * s.size + j;
  T* gates = s.gates + row * Cell::kBlocks * s.size + j;
  V a[Cell::kBlocks];
  Unit<V> u;
  load_gates<Cell::kBlocks>(lanes, gates, s.size, a);
  load_gates<Cell::kParams>(lanes, s.params + j, s.size, u.p);
  u.dh = lanes.load(s.dh + at);
  if (s.grad_h) u.dh = u.dh + lanes.load(s.grad_h + at);
  if constexpr (Cell::kCell) {
    u.c_prev = lanes.load(s.c_prev + at);
    u.c = lanes.load(s.c + at);
    u.dc = lanes.load(s.dc + at);
    if (s.grad_c) u.dc = u.dc + lanes.load(s.grad_c + at);
  } else {
    u.h_prev = lanes.load(s.h_prev + at);
  }
  if constexpr (Cell::kLower) u.lower = lanes.load(s.extra + at);
  if constexpr (Cell::kInner) u.inner = lanes.load(s.inner + at);
  Cell::backward(a, u);
  store_gates<Cell::kBlocks>(lanes, gates, s.size, a);
  accumulate<Cell::kBlocks>(lanes, shifted(s.d_bias, j), s.size, a);
  accumulate<Cell::kGrads>(lanes, shifted(s.d_params, j), s.size, u.dp);
  if constexpr (Cell::kCell) lanes.store(s.dc + at, u.dc);
  else lanes.store(s.dh + at, u.dh);
  if constexpr (Cell::kLower) {
    if (s.d_extra) lanes.store(s.d_extra + at, u.d_lower);
  }
  if constexpr (Cell::kInner) lanes.store(s.inner + at, u.inner);
}

template <class Cell>
struct Plain {
  template <class T>
  static void forward(const Step<T>& s, int64_t first_row, int64_t last_row) {
    constexpr int64_t width = Vec<T>::size();
    for (int64_t row = first_row; row < last_row; ++row) {
      int64_t j = 0;
      for (; j + width <= s.size; j += width) forward_units<Cell, true>(s, row, j, width);
      if (j < s.size) forward_units<Cell, false>(s, row, j, s.size - j);
    }
  }
  template <class T>
  static void backward(const Step<T>& s, int64_t first_row, int64_t last_row) {
    constexpr int64_t width = Vec<T>::size();
    for (int64_t row = first_row; row < last_row; ++row) {
      int64_t j = 0;
      for (; j + width <= s.size; j += width) backward_units<Cell, true>(s, row, j, width);
      if (j < s.size) backward_units<Cell, false>(s, row, j, s.size - j);
    }
  }
};

// S LSTM cells that read the same (h_prev, c_prev); their h and c are summed with weights alpha (B, S).
struct Mixture {
  static constexpr int kBlocks = Lstm::kBlocks;

  template <bool kFull, class T>
  static void forward_units(const Step<T>& s, int64_t row, int64_t j, int64_t n) {
    using V = Vec<T>;
    const Lanes<T, kFull> lanes{n};
    const int64_t at = row * s.size + j, block = kBlocks * s.size;
    const T* alpha = s.extra + row * s.cells;
    Unit<V> u;
    u.c_prev = lanes.load(s.c_prev + at);
    V h(T(0)), c(T(0)), a[kBlocks];
    for (int64_t i = 0; i < s.cells; ++i) {
      const int64_t cell = (row * s.cells + i) * block + j;
      load_sums<kBlocks, kBlocks>(lanes, s.gates + cell, shifted(s.bias, i * block + j),
                                  s.products + cell, s.size, a);
      Lstm::forward(a, u);
      if (s.keep) store_gates<kBlocks>(lanes, s.gates + cell, s.size, a);
      h = fmadd(V(alpha[i]), u.h, h);
      c = fmadd(V(alpha[i]), u.c, c);
    }
    lanes.store(s.h + at, h);
    lanes.store(s.c + at, c);
  }

  // Adds to d_alpha, (S) vectors whose lanes are still to be summed.
  template <bool kFull, class T>
  static void backward_units(const Step<T>& s, int64_t row, int64_t j, int64_t n, T* d_alpha) {
    using V = Vec<T>;
    const Lanes<T, kFull> lanes{n};
    const int64_t at = row * s.size + j, block = kBlocks * s.size;
    const T* alpha = s.extra + row * s.cells;
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
      Lstm::backward(a, u);
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
      for (; j + width <= s.size; j += width) backward_units<true>(s, row, j, width, d_alpha.data());
      if (j < s.size) backward_units<false>(s, row, j, s.size - j, d_alpha.data());
      if (!s.d_extra) continue;
      for (int64_t i = 0; i < s.cells; ++i)
        s.d_extra[row * s.cells + i] = sum(Vec<T>::loadu(d_alpha.data() + i * width));
    }
  }
};

template <class T, class Cell>
Kernel<T> plain() {
  return {Cell::kBlocks, Cell::kProducts, Cell::kParams, Cell::kGrads, Cell::kCell, Cell::kInner,
          Cell::kLower, false, Plain<Cell>::template forward<T>, Plain<Cell>::template backward<T>};
}

template <class T>
const Kernel<T>& find_kernel(const std::string& name) {
  static const std::pair<const char*, Kernel<T>> kernels[] = {
      {"lstm", plain<T, Lstm>()},
      {"normalized", plain<T, Normalized>()},
      {"cas", plain<T, Cas<false>>()},
      {"cas_trained", plain<T, Cas<true>>()},
      {"highway", plain<T, Highway>()},
      {"peephole", plain<T, Peephole<false>>()},
      {"depth_gated", plain<T, Peephole<true>>()},
      {"gru", plain<T, Gru>()},
      {"mixture",
       {4, 4, 0, 0, true, false, false, true, Mixture::forward<T>, Mixture::backward<T>}},
  };
  for (const auto& [known, kernel] : kernels)
    if (name == known) return kernel;
  TORCH_CHECK(false, "no kernel is called ", name);
}

}  // namespace casrnn
