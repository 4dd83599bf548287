#include "multiply.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "parallel.h"
#include "tensors.h"

namespace casrnn {
namespace {

using at::Tensor;

constexpr int64_t kFewest =
    64;  // with fewer rows, packing for one product costs more than it saves
constexpr int64_t kAligned = 16;

// The part of K to multiply at once: large enough that y is seldom read again, small enough that
// the rows and a panel fit in the cache. Rounded up, since kernels are compiled for a depth; with
// AMX, bfloat16 needs a multiple of kTile, or rows are copied.
int64_t depth_at_once(int64_t inner) {
  constexpr int64_t kMost = 1280, kTile = 2 * kAligned;
  const int64_t parts = (inner + kMost - 1) / kMost;
  return ((inner + parts - 1) / parts + kTile - 1) / kTile * kTile;
}

// The number of rows of y to finish at once: as many as stay in the cache, but not few, since b is
// read again for each such block.
int64_t rows_in_cache(int64_t columns) {
  constexpr int64_t kCache = 1 << 18, kLeast = 64;  // elements, rows
  return std::max(kCache / columns / 4 * 4, kLeast);
}

// The number of rows that each of `shares` threads computes at once of a product that is not
// stored: few, to save memory, but enough for reading b again.
int64_t rows_in_memory(int64_t rows, int64_t columns, int64_t shares) {
  constexpr int64_t kMost = 512, kLeast = 16;
  const int64_t each = std::max(kMost / shares, kLeast);
  return std::min({(rows + shares - 1) / shares, rows_in_cache(columns), each});
}

bool pays(int64_t rows, const Tensor& b, int64_t products = 1) {
  constexpr int64_t kFewestOfMany = 16;
  return rows >= rows_worth_panels(std::max(kFewest / products, kFewestOfMany)) && has_panels(b);
}

// The panels of rows [first, first + count) of b, for products with a.
Panels piece(const Tensor& a, const Tensor& b, int64_t first, int64_t count) {
  const bool narrow = is_narrow(b, a.size(0)), copied = narrow || a.stride(1) != 1;
  return Panels(b.narrow(0, first, count), narrow ? Precision::kBFloat16 : Precision::kFloat,
                copied ? kAligned : 1);
}

// y (+)= a · panels (+ bias), then calls `done`.
void multiply_piece(const Tensor& y, const Tensor& a, const Panels& panels, bool add,
                    const Tensor& bias, const RowsDone& done) {
  const int64_t rows = a.size(0), block = done ? rows_in_cache(y.size(1)) : rows;
  parallel_chunks(num_chunks(rows, a.size(1) * y.size(1) / 16), rows,
                  [&](int64_t, int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; row += block) {
                      const int64_t stop = std::min(end, row + block);
                      panels.run(a, y, add, row, stop, bias, row);
                      if (done) done(row, stop);
                    }
                  });
}

// The same, piece by piece of K; panels(first, count) returns those of a piece.
template <class F>
void multiply_by_pieces(const Tensor& y, const Tensor& a, bool add, const Tensor& bias,
                        const RowsDone& done, int64_t depth, const F& panels) {
  const int64_t inner = a.size(1);
  for (int64_t first = 0; first < inner; first += depth) {
    const int64_t count = std::min(depth, inner - first);
    const bool last = first + count == inner;
    multiply_piece(y, a.narrow(1, first, count), panels(first, count), add || first > 0,
                   last && bias.defined() ? bias.contiguous() : Tensor(), last ? done : RowsDone());
  }
}

void multiply_by_torch(Tensor y, const Tensor& a, const Tensor& b, bool add, const Tensor& bias,
                       const RowsDone& done) {
  if (add) at::addmm_out(y, y, a, b);
  else at::mm_out(y, a, b);
  if (bias.defined()) y.add_(bias);
  if (done)
    parallel_chunks(num_chunks(y.size(0), y.size(1)), y.size(0),
                    [&](int64_t, int64_t begin, int64_t end) { done(begin, end); });
}

}  // namespace

bool accepts_bfloat16(const Tensor& b, int64_t rows) { return pays(rows, b) && is_narrow(b, rows); }

void multiply(const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& bias,
              const RowsDone& done, bool add) {
  TORCH_CHECK(a.size(1) == b.size(0), "a product of ", a.sizes(), " and ", b.sizes());
  check("bias", bias, {b.size(1)});
  if (!pays(a.size(0), b)) return multiply_by_torch(y, a, b, add, bias, done);
  const Tensor x = with_dense_dimension(a);
  // Packed just before they are used, so that they are in the cache.
  multiply_by_pieces(y, x, add, bias, done, depth_at_once(x.size(1)),
                     [&](int64_t first, int64_t count) { return piece(x, b, first, count); });
}

Factor::Factor(Tensor b, const Tensor& a, int64_t products, bool inference)
    : b_(std::move(b)), depth_(depth_at_once(b_.size(0))) {
  if (inference && is_quantised(b_)) {
    depth_ = b_.size(0);  // a row of a has one scale
    pieces_.emplace_back(b_, Precision::kInt8);
    return;
  }
  if (!pays(a.size(0), b_, products)) return;
  const int64_t inner = b_.size(0);
  for (int64_t first = 0; first < inner; first += depth_)
    pieces_.push_back(piece(a, b_, first, std::min(depth_, inner - first)));
}

void Factor::multiply(const Tensor& y, const Tensor& a, const Tensor& bias,
                      const RowsDone& done) const {
  TORCH_CHECK(a.size(1) == b_.size(0), "a product of ", a.sizes(), " and ", b_.sizes());
  if (pieces_.empty()) return multiply_by_torch(y, a, b_, false, bias, done);
  auto next = pieces_.begin();
  multiply_by_pieces(y, a, false, bias, done, depth_,
                     [&](int64_t, int64_t) -> const Panels& { return *next++; });
}

void Factor::multiply(const Tensor& a, const Tensor& bias, const RowsPass& pass) const {
  TORCH_CHECK(a.size(1) == b_.size(0), "a product of ", a.sizes(), " and ", b_.sizes());
  if (pieces_.empty()) {
    const Tensor y = at::empty({a.size(0), b_.size(1)}, a.options());
    return multiply_by_torch(y, a, b_, false, bias, [&](int64_t begin, int64_t end) {
      pass(begin, end, data<float>(y, begin));
    });
  }
  const int64_t rows = a.size(0), inner = a.size(1), columns = b_.size(1);
  const Tensor added = bias.defined() ? bias.contiguous() : bias;
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < inner; first += depth_)
    parts.push_back(a.narrow(1, first, std::min(depth_, inner - first)));
  const int64_t shares = num_chunks(rows, inner * columns / 16),
                block = rows_in_memory(rows, columns, shares);
  const Tensor memory = at::empty({shares * block, columns}, a.options());
  parallel_chunks(shares, rows, [&](int64_t share, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += block) {
      const int64_t stop = std::min(end, row + block);
      for (size_t i = 0; i < parts.size(); ++i)
        pieces_[i].run(parts[i], memory, i > 0, row, stop, i + 1 < parts.size() ? Tensor() : added,
                       share * block);
      pass(row, stop, data<float>(memory, share * block));
    }
  });
}

}  // namespace casrnn
