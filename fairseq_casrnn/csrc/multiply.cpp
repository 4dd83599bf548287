#include "multiply.h"

#include <ATen/ops/mm.h>

#include <algorithm>

#include "narrow.h"
#include "packed.h"

namespace casrnn {
namespace {

using at::Tensor;

constexpr int64_t kBlock = 512;   // the product of so many rows is still in the cache when it is copied
constexpr int64_t kFewest = 512;  // with fewer rows, packing costs more than it saves
constexpr int64_t kAligned = 16;

void multiply_packed(const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const PackedProduct product(b, kBlock, bias);
  for (int64_t first = 0; first < a.size(0); first += kBlock) {
    const int64_t count = std::min(kBlock, a.size(0) - first);
    product.run(a.narrow(0, first, count), y.narrow(0, first, count), false);
  }
}

}  // namespace

void multiply(Tensor y, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const bool narrow = is_narrow(b, a.size(0));
  if (!narrow && a.stride(1) == 1 && a.size(0) >= kFewest && PackedProduct::is_available(b))
    return multiply_packed(y, a, b, bias);
  if (narrow) multiply_narrow(y, a, b);
  else if (a.stride(1) != 1 && b.stride(1) == 1 && b.size(1) % kAligned)
    y.copy_(at::mm(b.t(), a.t()).t());  // MKL is slow, up to a third, to write rows that are not aligned
  else at::mm_out(y, a, b);
  if (bias.defined()) y.add_(bias);
}

}  // namespace casrnn
