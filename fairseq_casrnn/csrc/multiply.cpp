#include "multiply.h"

#include <ATen/ops/mm.h>

#include <algorithm>

#include "panels.h"
#include "shares.h"
#include "tensors.h"

namespace casrnn {
namespace {

using at::Tensor;

constexpr int64_t kFewest = 64;  // with fewer rows, packing costs more than it saves
constexpr int64_t kAligned = 16;

// What of K is multiplied at once: so much that y is seldom read again, and so little that the rows and
// a panel are in the cache. Rounded up to kAligned, for kernels are compiled for a depth.
int64_t depth_at_once(int64_t inner) {
  constexpr int64_t kMost = 1280;
  const int64_t parts = (inner + kMost - 1) / kMost;
  return ((inner + parts - 1) / parts + kAligned - 1) / kAligned * kAligned;
}

// How many rows of y to finish at once: as many as are still in the cache then.
int64_t rows_in_cache(int64_t columns) {
  constexpr int64_t kCache = 1 << 18;  // elements
  return std::max<int64_t>(kCache / columns / 4 * 4, 8);
}

void multiply_panels(const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& bias, bool narrow,
                     const RowsDone& done) {
  const int64_t rows = a.size(0), inner = a.size(1), depth = depth_at_once(inner);
  const bool copied = narrow || a.stride(1) != 1;
  for (int64_t first = 0; first < inner; first += depth) {
    const int64_t count = std::min(depth, inner - first);
    const Tensor last = first + count == inner && bias.defined() ? bias.contiguous() : Tensor();
    const Panels panels(b.narrow(0, first, count), narrow, copied ? kAligned : 1);
    const Tensor x = a.narrow(1, first, count);
    const bool finishing = done && first + count == inner;
    const int64_t block = finishing ? rows_in_cache(y.size(1)) : rows;
    shared_out(shares_of(rows, count * y.size(1) / 16), rows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row += block) {
        const int64_t stop = std::min(end, row + block);
        panels.run(x, y, first > 0, row, stop, last);
        if (finishing) done(row, stop);
      }
    });
  }
}

}  // namespace

void multiply(Tensor y, const Tensor& a, const Tensor& b, const Tensor& bias, const RowsDone& done) {
  TORCH_CHECK(a.size(1) == b.size(0), "a product of ", a.sizes(), " and ", b.sizes());
  check("bias", bias, {b.size(1)});
  if (a.size(0) >= rows_worth_panels(kFewest) && has_panels(b))
    return multiply_panels(y, with_dense_dimension(a), b, bias, is_narrow(b, a.size(0)), done);
  at::mm_out(y, a, b);
  if (bias.defined()) y.add_(bias);
  if (done) shared_out(shares_of(y.size(0), y.size(1)), y.size(0), [&](int64_t, int64_t begin, int64_t end) {
    done(begin, end);
  });
}

}  // namespace casrnn
