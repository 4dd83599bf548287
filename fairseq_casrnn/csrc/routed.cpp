#include "product.h"  // first: it chooses the instruction set

#include "routed.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstring>
#include <deque>

#include "kernels.h"
#include "parallel.h"
#include "tensors.h"

namespace casrnn {
namespace {

// Copies `count` rows of `width` elements from or to the rows `where` of a larger matrix.
template <class T>
void gather(const T* from, const int64_t* where, int64_t count, int64_t width, T* to) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * width, from + where[i] * width, width * sizeof(T));
}

template <class T>
void scatter(const T* from, const int64_t* where, int64_t count, int64_t width, T* to) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + where[i] * width, from + i * width, width * sizeof(T));
}

// Rows sorted by cell: those of cell s are order[starts[s]] to order[starts[s + 1] - 1].
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
    products.emplace_back(weight_t.narrow(1, first, gates), rows, many, true);
  return products;
}

template <class T>
void routed_forward_as(Routed& layer) {
  constexpr int64_t kRows = 1024;  // inputs whose products are computed at once
  const int64_t steps = layer.x.size(0), batch = layer.x.size(1), inputs = layer.x.size(2);
  const int64_t size = layer.hs.size(2), gates = 4 * size,
                mixed = layer.weight_hh_t.size(1) / gates;
  check("weight_ih", layer.weight_ih_t, {inputs, mixed * gates});
  check("weight_hh", layer.weight_hh_t, {size, mixed * gates});
  check("bias", layer.bias, {mixed * gates});
  check("cells", layer.cells, {steps, batch});
  check("the initial h", layer.hs, {steps + 1, batch, size});
  check("the initial c", layer.cs, layer.hs.sizes());
  TORCH_CHECK(steps > 0 && batch > 0, "there is nothing to run over");
  const int64_t block = std::clamp<int64_t>(kRows / batch, 1, steps);
  const auto input = by_cell<T>(layer.weight_ih_t, gates, block * batch, block < steps);
  const auto recurrent = by_cell<T>(layer.weight_hh_t, gates, batch, steps > 1);
  const Kernel<T>& lstm = kernel<T>("stacked_lstm");
  const SharedRows<T> rows(lstm, batch, gates);
  const auto options = layer.hs.options();
  const at::Tensor xs = at::empty({block * batch, inputs}, options);
  const at::Tensor made = at::empty({block * batch, gates}, options), sums = at::empty_like(made);
  const at::Tensor products = at::empty({batch, gates}, options);
  // h and c before and after a step, sorted by cell.
  const at::Tensor states = at::empty({4, batch, size}, options);
  const at::Tensor h_prev = states.select(0, 0);
  T* const h_data = data<T>(layer.hs);
  T* const c_data = data<T>(layer.cs);
  const T* const biases = data<T>(layer.bias);
  T* const made_data = data<T>(made);
  T* const sums_data = data<T>(sums);
  const int64_t* cells = layer.cells.const_data_ptr<int64_t>();
  const bool known =
      std::all_of(cells, cells + steps * batch, [&](int64_t s) { return s >= 0 && s < mixed; });
  TORCH_CHECK(known, "an input goes to a cell that is not among the ", mixed);
  for (int64_t first = 0; first < steps; first += block) {
    const int64_t count = std::min(block, steps - first), tokens = count * batch;
    const Sorted all(cells + first * batch, tokens, mixed);
    gather(data<T>(layer.x, first), all.order.data(), tokens, inputs, data<T>(xs));
    for (int64_t s = 0; s < mixed; ++s) {
      const int64_t begin = all.starts[s], found = all.starts[s + 1] - begin;
      if (found) input[s].run(xs.narrow(0, begin, found), made.narrow(0, begin, found), false);
    }
    std::vector<Sorted> order;           // of each step's rows
    std::vector<int64_t> place(tokens);  // position of each input in the order of its step
    for (int64_t i = 0; i < count; ++i) {
      order.emplace_back(cells + (first + i) * batch, batch, mixed);
      for (int64_t r = 0; r < batch; ++r) place[i * batch + order[i].order[r]] = i * batch + r;
    }
    parallel_chunks(num_chunks(tokens, gates), tokens, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t token = all.order[i];
        const T* const bias = biases + cells[first * batch + token] * gates;
        const T* const from = made_data + i * gates;
        T* const to = sums_data + place[token] * gates;
        for (int64_t k = 0; k < gates; ++k) to[k] = from[k] + bias[k];
      }
    });
    for (int64_t i = 0; i < count; ++i) {
      const int64_t t = first + i;
      const int64_t* const rows_of = order[i].order.data();
      gather(h_data + t * batch * size, rows_of, batch, size, data<T>(states, 0));
      gather(c_data + t * batch * size, rows_of, batch, size, data<T>(states, 1));
      for (int64_t s = 0; s < mixed; ++s) {
        const int64_t begin = order[i].starts[s], found = order[i].starts[s + 1] - begin;
        if (found)
          recurrent[s].run(h_prev.narrow(0, begin, found), products.narrow(0, begin, found), false);
      }
      Step<T> step{};
      step.batch = batch, step.size = size, step.cells = 1;
      step.gates = sums_data + i * batch * gates;
      step.products = data<T>(products);
      step.h_prev = data<T>(states, 0), step.c_prev = data<T>(states, 1);
      step.h = data<T>(states, 2), step.c = data<T>(states, 3);
      rows.forward(step);
      scatter(step.h, rows_of, batch, size, h_data + (t + 1) * batch * size);
      scatter(step.c, rows_of, batch, size, c_data + (t + 1) * batch * size);
    }
  }
}

}  // namespace

void routed_forward(Routed& layer) {
  AT_DISPATCH_FLOATING_TYPES(layer.hs.scalar_type(), "casrnn::routed_forward",
                             [&] { routed_forward_as<scalar_t>(layer); });
}

}  // namespace casrnn
