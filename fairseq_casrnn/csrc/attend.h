// Attention of one row: products of a vector with a few others, and a softmax.
#pragma once

#include <cmath>
#include <limits>

#include "vec.h"

namespace casrnn {

// The inner product of two vectors of n elements.
template <class T>
inline T dot(const T* a, const T* b, int64_t n) {
  using V = Vec<T>;
  constexpr int64_t width = V::size();
  V sums[4] = {V(T(0)), V(T(0)), V(T(0)), V(T(0))};
  int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width)
    for (int p = 0; p < 4; ++p)
      sums[p] = fmadd(V::loadu(a + i + p * width), V::loadu(b + i + p * width), sums[p]);
  for (; i + width <= n; i += width) sums[0] = fmadd(V::loadu(a + i), V::loadu(b + i), sums[0]);
  if (i < n) sums[1] = fmadd(V::loadu(a + i, n - i), V::loadu(b + i, n - i), sums[1]);
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// y += scale * x
template <class T>
inline void add_scaled(T* y, T scale, const T* x, int64_t n) {
  using V = Vec<T>;
  constexpr int64_t width = V::size();
  const V s(scale);
  int64_t i = 0;
  for (; i + width <= n; i += width) fmadd(s, V::loadu(x + i), V::loadu(y + i)).store(y + i);
  if (i < n) fmadd(s, V::loadu(x + i, n - i), V::loadu(y + i, n - i)).store(y + i, n - i);
}

// to[i] = f(a[i], b[i])
template <class T, class F>
inline void map(T* to, const T* a, const T* b, int64_t n, F f) {
  using V = Vec<T>;
  constexpr int64_t width = V::size();
  int64_t i = 0;
  for (; i + width <= n; i += width) f(V::loadu(a + i), V::loadu(b + i)).store(to + i);
  if (i < n) f(V::loadu(a + i, n - i), V::loadu(b + i, n - i)).store(to + i, n - i);
}

// Softmax of scores / temperature, in place.
template <class T>
inline void softmax(T* scores, int64_t n, T temperature = T(1)) {
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, scores[i]);
  T total = 0;
  for (int64_t i = 0; i < n; ++i)
    total += scores[i] = std::exp((scores[i] - largest) / temperature);
  for (int64_t i = 0; i < n; ++i) scores[i] /= total;
}

// The gradient of the scores, given the softmax and its gradient.
template <class T>
inline void softmax_backward(T* d_scores, const T* alpha, const T* d_alpha, int64_t n,
                             T temperature = T(1)) {
  T inner = 0;
  for (int64_t i = 0; i < n; ++i) inner += alpha[i] * d_alpha[i];
  for (int64_t i = 0; i < n; ++i) d_scores[i] = alpha[i] * (d_alpha[i] - inner) / temperature;
}

// One sentence's keys and values, (positions, size), and its padding (may be null).
template <class T>
struct Source {
  const T* keys;
  const T* values;
  const bool* mask;
  int64_t positions, size;

  bool padding(int64_t s) const { return mask && mask[s]; }

  // Writes the weights to alpha, and to out: tanh(out + the weighted sum of values).
  void forward(const T* h, T* alpha, T* out) const {
    for (int64_t s = 0; s < positions; ++s)
      alpha[s] = padding(s) ? -std::numeric_limits<T>::infinity() : dot(keys + s * size, h, size);
    softmax(alpha, positions);
    for (int64_t s = 0; s < positions; ++s)
      if (!padding(s)) add_scaled(out, alpha[s], values + s * size, size);
    map(out, out, out, size, [](Vec<T> a, Vec<T>) { return tanh(a); });
  }

  // d_pre: gradient before the tanh. d_alpha comes in with the incoming gradient of alpha. Adds to
  // dh.
  void backward(const T* alpha, const T* d_pre, T* d_alpha, T* d_scores, T* dh) const {
    for (int64_t s = 0; s < positions; ++s)
      if (!padding(s)) d_alpha[s] += dot(values + s * size, d_pre, size);
    softmax_backward(d_scores, alpha, d_alpha, positions);
    for (int64_t s = 0; s < positions; ++s)
      if (!padding(s)) add_scaled(dh, d_scores[s], keys + s * size, size);
  }
};

}  // namespace casrnn
