// Products of two matrices.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "panels.h"

namespace casrnn {

// Called with rows [begin, end) of a product while they are still in the thread's cache.
using RowsDone = std::function<void(int64_t begin, int64_t end)>;

// The same for a product that is not stored: `rows` are [begin, end), contiguous, and may be
// overwritten.
using RowsPass = std::function<void(int64_t begin, int64_t end, float* rows)>;

// Whether products of `rows` rows with b round to bfloat16, so that the rows may be of that dtype.
bool accepts_bfloat16(const at::Tensor& b, int64_t rows);

// y = a · b, or y += a · b if `add`, plus bias if there is one; the rows of y are contiguous.
// Factors are rounded to bfloat16 if is_narrow; for large products of floats, b is packed in
// panels.
void multiply(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b,
              const at::Tensor& bias = {}, const RowsDone& done = {}, bool add = false);

// The factor b of several such products, packed once.
class Factor {
 public:
  // a: the first a to be multiplied, with the most rows; the rows of all are contiguous. products:
  // how many there will be of that size. inference: whether they may be quantised.
  Factor(at::Tensor b, const at::Tensor& a, int64_t products = 1, bool inference = false);

  int64_t columns() const { return b_.size(1); }

  void multiply(const at::Tensor& y, const at::Tensor& a, const at::Tensor& bias = {},
                const RowsDone& done = {}) const;

  // Calls `pass` with the rows of a · b + bias, some at a time, all float32. In parallel.
  void multiply(const at::Tensor& a, const at::Tensor& bias, const RowsPass& pass) const;

 private:
  at::Tensor b_;
  int64_t depth_;               // of a piece
  std::vector<Panels> pieces_;  // of K; empty if torch multiplies
};

}  // namespace casrnn
