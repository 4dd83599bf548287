#include "product.h"  // first: it chooses the instruction set

#include "routed.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstring>
#include <deque>

#include "kernels.h"
#include "shares.h"
#include "tensors.h"

namespace casrnn {
namespace {

// Copies of `count` rows of `width` elements, from or to the rows `where` of a larger matrix.
template <class T>
void gather(const T* from, const int64_t* where, int64_t count, int64_t width, T* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * width, from + where[i] * width, width * sizeof(T));
}

template <class T>
void scatter(const T* from, const int64_t* where, int64_t count, int64_t width, T* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + where[i] * width, from + i * width, width * sizeof(T));
}

// Rows sorted by their cell: those of cell s are order[starts[s]] to order[starts[s + 1] - 1].
struct Sorted {
  std::vector<int64_t> order, starts;

  Sorted(const int64_t* cells, int64_t rows, int64_t count) : order(rows), starts(count + 1, 0) {
    for (int64_t r = 0; r < rows; ++r) ++starts[cells[r] + 1];
    for (int64_t s = 0; s < count; ++s) starts[s + 1] += starts[s];
    std::vector<int64_t> next = starts;
    for (int64_t r = 0; r < rows; ++r) order[next[cells[r]]++] = r;
  }
};

template <class T>
std::deque<Product<T>> by_cell(const at::Tensor& weight_t, int64_t gates, int64_t rows, bool many) {
  std::deque<Product<T>> products;
  for (int64_t first = 0; first < weight_t.size(1); first += gates)
    products.emplace_back(weight_t.narrow(1, first, gates), rows, many);
  return products;
}

template <class T>
void routed_forward_as(Routed& layer) {
  constexpr int64_t kRows = 1024;  // inputs whose products are done at once
  const int64_t steps = layer.x.size(0), batch = layer.x.size(1), inputs = layer.x.size(2);
  const int64_t size = layer.hs.size(2), gates = 4 * size, count = layer.weight_hh_t.size(1) / gates;
  check("weight_ih", layer.weight_ih_t, {inputs, count * gates});
  check("weight_hh", layer.weight_hh_t, {size, count * gates});
  check("bias", layer.bias, {count * gates});
  check("cells", layer.cells, {steps, batch});
  check("the initial h", layer.hs, {steps + 1, batch, size});
  check("the initial c", layer.cs, layer.hs.sizes());
  TORCH_CHECK(steps > 0 && batch > 0, "there is nothing to run over");
  const int64_t block = std::clamp<int64_t>(kRows / batch, 1, steps);
  const auto input = by_cell<T>(layer.weight_ih_t, gates, block * batch, block < steps);
  const auto recurrent = by_cell<T>(layer.weight_hh_t, gates, batch, steps > 1);
  const Kernel<T>& lstm = kernel<T>("lstm");
  const SharedRows<T> rows(lstm, batch, gates);
  const auto options = layer.hs.options();
  const at::Tensor xs = at::empty({block * batch, inputs}, options);
  const at::Tensor made = at::empty({block * batch, gates}, options), sums = at::empty_like(made);
  const at::Tensor products = at::empty({batch, gates}, options);
  // States of a step, h and c before and after, in the order of the cells.
  const at::Tensor states = at::empty({4, batch, size}, options);
  const at::Tensor h_prev = states.select(0, 0);
  T* const h_data = data<T>(layer.hs);
  T* const c_data = data<T>(layer.cs);
  const int64_t* cells = layer.cells.const_data_ptr<int64_t>();
  const bool known = std::all_of(cells, cells + steps * batch, [&](int64_t s) { return s >= 0 && s < count; });
  TORCH_CHECK(known, "an input goes to a cell that is not among the ", count);
  for (int64_t first = 0; first < steps; first += block) {
    const int64_t tokens = std::min(block, steps - first) * batch;
    const Sorted all(cells + first * batch, tokens, count);
    gather(data<T>(layer.x, first), all.order.data(), tokens, inputs, data<T>(xs));
    for (int64_t s = 0; s < count; ++s) {
      const int64_t begin = all.starts[s], found = all.starts[s + 1] - begin;
      if (!found) continue;
      const at::Tensor sum = made.narrow(0, begin, found);
      input[s].run(xs.narrow(0, begin, found), sum, false);
      sum.add_(layer.bias.narrow(0, s * gates, gates));
    }
    scatter(data<T>(made), all.order.data(), tokens, gates, data<T>(sums));
    for (int64_t t = first; t < first + tokens / batch; ++t) {
      const Sorted step(cells + t * batch, batch, count);
      const int64_t* order = step.order.data();
      gather(h_data + t * batch * size, order, batch, size, data<T>(states, 0));
      gather(c_data + t * batch * size, order, batch, size, data<T>(states, 1));
      gather(data<T>(sums) + (t - first) * batch * gates, order, batch, gates, data<T>(made));
      for (int64_t s = 0; s < count; ++s) {
        const int64_t begin = step.starts[s], found = step.starts[s + 1] - begin;
        if (found) recurrent[s].run(h_prev.narrow(0, begin, found), products.narrow(0, begin, found), false);
      }
      Step<T> row{};
      row.batch = batch, row.size = size, row.cells = 1;
      row.gates = data<T>(made);
      row.products = data<T>(products);
      row.h_prev = data<T>(states, 0), row.c_prev = data<T>(states, 1);
      row.h = data<T>(states, 2), row.c = data<T>(states, 3);
      rows.forward(row);
      scatter(row.h, order, batch, size, h_data + (t + 1) * batch * size);
      scatter(row.c, order, batch, size, c_data + (t + 1) * batch * size);
    }
  }
}

}  // namespace

void routed_forward(Routed& layer) {
  AT_DISPATCH_FLOATING_TYPES(layer.hs.scalar_type(), "casrnn::routed_forward",
                             [&] { routed_forward_as<scalar_t>(layer); });
}

}  // namespace casrnn
