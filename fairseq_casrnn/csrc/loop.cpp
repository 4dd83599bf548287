#include "product.h"  // first: it chooses the instruction set

#include "loop.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels.h"
#include "multiply.h"
#include "parallel.h"
#include "tensors.h"

namespace casrnn {
namespace {

// The sizes of a layer's loop, and pointers into its buffers.
template <class T>
struct Loop {
  const Kernel<T>& kernel;
  const std::vector<int64_t>& rows;  // of each step
  std::vector<int64_t> starts;       // first row of each step in x, gates, candidate, side; then N
  int64_t steps, batch, size, cells, gates;
  int64_t fused;     // columns of U h that are added to the gates
  int64_t separate;  // number of the others, the candidate

  explicit Loop(const Layer& layer)
      : kernel(casrnn::kernel<T>(layer.name)),
        rows(layer.rows),
        starts(1, 0),
        steps(rows.size()),
        batch(steps > 0 ? rows[0] : 0),
        size(layer.hs.size(1)),
        cells(kernel.mixture && layer.side.defined() ? layer.side.size(1) : 1),
        gates(kernel.blocks * cells * size),
        fused((kernel.products * cells - kernel.candidate) * size),
        separate(kernel.candidate ? size : 0) {
    TORCH_CHECK(steps > 0 && batch > 0, "no step or no sequence");
    for (int64_t t = 0; t < steps; ++t) {
      TORCH_CHECK(rows[t] > 0 && rows[t] <= rows[t > 0 ? t - 1 : 0],
                  "sequences are not sorted by length");
      starts.push_back(starts[t] + rows[t]);
    }
    const int64_t all = starts[steps];
    check("the initial h", layer.hs, {batch + all, size});
    check("weight_hh", layer.weight_hh_t, {size, fused + separate});
    check("x", layer.x, {all, layer.x.defined() ? layer.weight_ih_t.size(0) : 0});
    check("weight_ih", layer.weight_ih_t, {layer.x.defined() ? layer.x.size(1) : 0, gates});
    check("bias", layer.bias, {gates});
    check("gx", layer.gates, {all, gates});
    check("the initial c", layer.cs, layer.hs.sizes());
    check("side", layer.side, {all, kernel.mixture ? cells : size});
    check("params", layer.params, {kernel.params, size});
    TORCH_CHECK(layer.cs.defined() == kernel.cell, "c is missing, or there is none");
    TORCH_CHECK(layer.side.defined() == (kernel.lower || kernel.mixture),
                "side is missing, or unused");
    TORCH_CHECK(layer.params.defined() == (kernel.params > 0), "params are missing, or unused");
  }

  // First row of the states before step t; those after it, at(t).h, begin at state(t + 1).
  int64_t state(int64_t t) const { return t > 0 ? batch + starts[t - 1] : 0; }

  // Step t, whose gates begin in row `slot`.
  Step<T> at(const Layer& layer, int64_t t, int64_t slot) const {
    Step<T> s{};
    s.batch = rows[t], s.size = size, s.cells = cells;
    s.gates = data<T>(layer.gates) + slot * gates;
    s.params = data<T>(layer.params);
    s.h_prev = data<T>(layer.hs) + state(t) * size;
    s.h = data<T>(layer.hs) + state(t + 1) * size;
    if (kernel.cell) s.c_prev = data<T>(layer.cs) + state(t) * size;
    if (kernel.cell) s.c = data<T>(layer.cs) + state(t + 1) * size;
    if (kernel.candidate) s.candidate = data<T>(layer.candidate) + slot * size;
    if (layer.side.defined()) s.side = data<T>(layer.side, starts[t]);
    return s;
  }

  // Blocks of steps whose input products are computed at once: the first step of each, then
  // `steps`. They are large enough to use the matrix units well, and small enough for their gates
  // to be in the cache when the recurrent product is added.
  std::vector<int64_t> blocks(const Layer& layer) const {
    constexpr int64_t kCache = 1 << 20;
    const int64_t weight = layer.x.size(1) * gates * int64_t(sizeof(T));
    const int64_t most =
        std::max<int64_t>(kCache / (gates * int64_t(sizeof(T))), weight > kCache ? 512 : 256);
    std::vector<int64_t> firsts(1, 0);
    for (int64_t t = 1; t < steps; ++t)
      if (starts[t + 1] - starts[firsts.back()] > most) firsts.push_back(t);
    firsts.push_back(steps);
    return firsts;
  }
};

template <class T>
void forward_as(Layer& layer, bool keep) {
  const Loop<T> loop(layer);
  std::vector<int64_t> blocks{0, loop.steps};
  std::optional<Product<T>> input;
  if (layer.x.defined()) {
    blocks = loop.blocks(layer);
    int64_t largest = 0;  // rows of the largest block
    for (size_t i = 0; i + 1 < blocks.size(); ++i)
      largest = std::max(largest, loop.starts[blocks[i + 1]] - loop.starts[blocks[i]]);
    const int64_t slots = keep ? loop.starts[loop.steps] : largest;
    layer.gates = at::empty({slots, loop.gates}, layer.hs.options());
    if (loop.separate) layer.candidate = at::empty({slots, loop.size}, layer.hs.options());
    input.emplace(layer.weight_ih_t, largest, blocks.size() > 2, !keep);
  }
  const auto product = step_product<T>(layer.weight_hh_t, loop.batch, loop.steps, !keep);
  const SharedRows<T> rows(loop.kernel, loop.batch, loop.gates);
  const at::Tensor products =
      at::empty({loop.batch, loop.fused + loop.separate}, layer.hs.options());
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    const int64_t first = loop.starts[blocks[i]], count = loop.starts[blocks[i + 1]] - first;
    // Gates that are not kept reuse the memory of the block before.
    const int64_t back = keep || !layer.x.defined() ? 0 : first;
    if (layer.x.defined())
      input->run(layer.x.narrow(0, first, count), layer.gates.narrow(0, first - back, count),
                 false);
    for (int64_t t = blocks[i]; t < blocks[i + 1]; ++t) {
      Step<T> s = loop.at(layer, t, loop.starts[t] - back);
      s.products = data<T>(products);
      s.bias = data<T>(layer.bias);
      s.keep = keep;
      // The kernel adds it to the gates: accumulating in the product makes small ones up to a third
      // slower.
      product.run(layer.hs, loop.state(t), loop.rows[t], products, false);
      rows.forward(s);
    }
  }
}

// The states before the step of each row, (N, H).
template <class T>
at::Tensor states_before(const Layer& layer, const Loop<T>& loop) {
  const int64_t all = loop.starts[loop.steps];
  if (all == loop.steps * loop.batch) return layer.hs.narrow(0, 0, all);
  const at::Tensor states = at::empty({all, loop.size}, layer.hs.options());
  for (int64_t t = 0; t < loop.steps; ++t)
    std::copy_n(data<T>(layer.hs, loop.state(t)), loop.rows[t] * loop.size,
                data<T>(states, loop.starts[t]));
  return states;
}

// The gradients of W, x and U, each one product over all steps.
void weight_gradients(const Layer& layer, const at::Tensor& states, Gradients& grads, int64_t fused,
                      int64_t separate) {
  grads.weight_hh = at::empty({fused + separate, states.size(1)}, states.options());
  multiply(grads.weight_hh.narrow(0, 0, fused), layer.gates.narrow(1, 0, fused).t(), states);
  if (separate) multiply(grads.weight_hh.narrow(0, fused, separate), layer.candidate.t(), states);
  if (!layer.x.defined()) return;
  grads.weight_ih =
      at::empty({layer.weight_ih_t.size(1), layer.weight_ih_t.size(0)}, states.options());
  multiply(grads.weight_ih, layer.gates.t(), layer.x);
  if (!grads.wants_x) return;
  grads.x = at::empty_like(layer.x);
  multiply(grads.x, layer.gates, layer.weight_ih_t.t());
}

template <class T>
void backward_as(Layer& layer, Gradients& grads) {
  const Loop<T> loop(layer);
  const at::Tensor weight_hh = layer.weight_hh_t.t();
  const auto outer = step_product<T>(weight_hh.narrow(0, 0, loop.fused), loop.batch, loop.steps);
  const auto candidate =
      step_product<T>(weight_hh.narrow(0, loop.fused, loop.separate), loop.batch, loop.steps);
  const at::Tensor d_fused = layer.gates.narrow(1, 0, loop.fused);
  if (grads.wants_side && layer.side.defined()) grads.side = at::empty_like(layer.side);
  SharedRows<T> rows(loop.kernel, loop.batch, loop.gates);
  rows.clear(loop.size, layer.x.defined(), layer.hs);
  for (int64_t t = loop.steps - 1; t >= 0; --t) {
    const int64_t first = loop.starts[t];
    Step<T> s = loop.at(layer, t, first);
    s.dh = data<T>(grads.dh);
    s.dc = data<T>(grads.dc);
    s.grad_h = data<T>(grads.grad_hs, first);
    s.grad_c = data<T>(grads.grad_cs, first);
    s.d_side = data<T>(grads.side, first);
    rows.backward(s);
    // A cell without c leaves the part of the gradient that does not pass through U in dh.
    outer.run(d_fused, first, loop.rows[t], grads.dh, !loop.kernel.cell);
    if (loop.separate) candidate.run(layer.candidate, first, loop.rows[t], grads.dh, true);
  }
  grads.params = rows.d_params();
  grads.bias = rows.d_bias();
  weight_gradients(layer, states_before(layer, loop), grads, loop.fused, loop.separate);
}

}  // namespace

void forward(Layer& layer, bool keep) {
  AT_DISPATCH_FLOATING_TYPES(layer.hs.scalar_type(), "casrnn::forward",
                             [&] { forward_as<scalar_t>(layer, keep); });
}

void backward(Layer& layer, Gradients& grads) {
  AT_DISPATCH_FLOATING_TYPES(layer.hs.scalar_type(), "casrnn::backward",
                             [&] { backward_as<scalar_t>(layer, grads); });
}

}  // namespace casrnn
