// Products of two matrices.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "panels.h"

namespace casrnn {

// What becomes of rows [begin, end) of a product while they are still in the thread's cache.
using RowsDone = std::function<void(int64_t begin, int64_t end)>;

// The same of a product that is not kept: `rows` are those of [begin, end), dense, and may be written to.
using RowsPass = std::function<void(int64_t begin, int64_t end, float* rows)>;

// Whether products of `rows` rows with b are narrow, so that those rows may be of bfloat16.
bool takes_halves(const at::Tensor& b, int64_t rows);

// y = a · b, or with `add` y += a · b, plus bias where there is one, y with dense rows:
// narrow where is_narrow, of large ones of floats with b in panels.
void multiply(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {},
              const RowsDone& done = {}, bool add = false);

// The b of several such products, whose panels are made once.
class Factor {
 public:
  // a: the first a that it will be multiplied with, and the one with the most rows; like all, with dense
  // rows. products: how many there will be with as many rows.
  Factor(at::Tensor b, const at::Tensor& a, int64_t products = 1);

  int64_t columns() const { return b_.size(1); }

  void multiply(const at::Tensor& y, const at::Tensor& a, const at::Tensor& bias = {},
                const RowsDone& done = {}) const;

  // Gives the rows of a · b + bias to `pass`, some at a time. Where takes_halves.
  void multiply(const at::Tensor& a, const at::Tensor& bias, const RowsPass& pass) const;

 private:
  at::Tensor b_;
  std::vector<Panels> pieces_;  // of K; none where torch multiplies
};

}  // namespace casrnn
