// Runs a cell's step (its kernel.h) over the rows of a batch.
#pragma once

#include "../cells/base.h"
#include "kernels.h"

namespace casrnn {

// The pre-activations of kBlocks gates of some units: W x, the bias unless null, and U h for the
// first kAdded of them.
template <int kBlocks, int kAdded, class L, class T>
inline void load_sums(const L& lanes, const T* gates, const T* bias, const T* products,
                      int64_t size, Vec<T>* a) {
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

// sums += a, unless sums is null.
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
  if constexpr (Cell::kLower) u.lower = lanes.load(s.side + at);
  if constexpr (Cell::kCandidate) u.candidate = lanes.load(products + Cell::kAdded * s.size);
  Cell::forward(a, u);
  lanes.store(s.h + at, u.h);
  if constexpr (Cell::kCell) lanes.store(s.c + at, u.c);
  if (!s.keep) return;
  store_gates<Cell::kBlocks>(lanes, gates, s.size, a);
  if constexpr (Cell::kCandidate) lanes.store(s.candidate + at, u.candidate);
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
  if constexpr (Cell::kLower) u.lower = lanes.load(s.side + at);
  if constexpr (Cell::kCandidate) u.candidate = lanes.load(s.candidate + at);
  Cell::backward(a, u);
  store_gates<Cell::kBlocks>(lanes, gates, s.size, a);
  accumulate<Cell::kBlocks>(lanes, shifted(s.d_bias, j), s.size, a);
  accumulate<Cell::kGrads>(lanes, shifted(s.d_params, j), s.size, u.dp);
  if constexpr (Cell::kCell) lanes.store(s.dc + at, u.dc);
  else lanes.store(s.dh + at, u.dh);
  if constexpr (Cell::kLower) {
    if (s.d_side) lanes.store(s.d_side + at, u.d_lower);
  }
  if constexpr (Cell::kCandidate) lanes.store(s.candidate + at, u.candidate);
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

// The kernel of a cell, which derives from Shape.
template <class T, class Cell>
Kernel<T> make_kernel() {
  if constexpr (Cell::kMixture) {
    return {Cell::kBlocks,
            Cell::kProducts,
            0,
            0,
            true,
            false,
            false,
            true,
            Cell::template forward<T>,
            Cell::template backward<T>};
  } else {
    return {Cell::kBlocks,
            Cell::kProducts,
            Cell::kParams,
            Cell::kGrads,
            Cell::kCell,
            Cell::kCandidate,
            Cell::kLower,
            false,
            Plain<Cell>::template forward<T>,
            Plain<Cell>::template backward<T>};
  }
}

}  // namespace casrnn
