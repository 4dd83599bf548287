#include "product.h"  // first: it chooses the instruction set

#include "loop.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "kernels.h"
#include "multiply.h"
#include "shares.h"
#include "tensors.h"

namespace casrnn {
namespace {

// Shapes of a layer's loop, and its buffers as pointers.
template <class T>
struct Loop {
  const Kernel<T>& kernel;
  int64_t steps, batch, size, cells, gates;
  int64_t added;  // columns of U h that are added to the gates; the others make inner
  int64_t apart;  // the number of those others

  explicit Loop(const Layer& layer)
      : kernel(casrnn::kernel<T>(layer.name)),
        steps(layer.hs.size(0) - 1),
        batch(layer.hs.size(1)),
        size(layer.hs.size(2)),
        cells(kernel.mixture && layer.extra.defined() ? layer.extra.size(2) : 1),
        gates(kernel.blocks * cells * size),
        added((kernel.products * cells - kernel.inner) * size),
        apart(kernel.inner ? size : 0) {
    TORCH_CHECK(steps > 0 && batch > 0, "no step or no sequence");
    check("weight_hh", layer.weight_hh_t, {size, added + apart});
    check("x", layer.x, {steps, batch, layer.x.defined() ? layer.weight_ih_t.size(0) : 0});
    check("weight_ih", layer.weight_ih_t, {layer.x.defined() ? layer.x.size(2) : 0, gates});
    check("bias", layer.bias, {gates});
    check("gx", layer.gates, {steps, batch, gates});
    check("the initial c", layer.cs, layer.hs.sizes());
    check("extra", layer.extra, {steps, batch, kernel.mixture ? cells : size});
    check("params", layer.params, {kernel.params, size});
    TORCH_CHECK(layer.cs.defined() == kernel.cell, "c is missing, or there is none");
    TORCH_CHECK(layer.extra.defined() == (kernel.lower || kernel.mixture), "extra is missing, or unused");
    TORCH_CHECK(layer.params.defined() == (kernel.params > 0), "params are missing, or unused");
  }

  // Step t, whose gates stand at index `slot`.
  Step<T> at(const Layer& layer, int64_t t, int64_t slot) const {
    Step<T> s{};
    s.batch = batch, s.size = size, s.cells = cells;
    s.gates = data<T>(layer.gates) + slot * batch * gates;
    s.params = data<T>(layer.params);
    const int64_t state = batch * size;
    s.h_prev = data<T>(layer.hs) + t * state;
    s.h = data<T>(layer.hs) + (t + 1) * state;
    if (kernel.cell) s.c_prev = data<T>(layer.cs) + t * state;
    if (kernel.cell) s.c = data<T>(layer.cs) + (t + 1) * state;
    if (kernel.inner) s.inner = data<T>(layer.inner) + slot * state;
    if (layer.extra.defined()) s.extra = data<T>(layer.extra) + t * layer.extra.stride(0);
    return s;
  }

  // How many steps' input products to do at once: so many that they fill the matrix units, and so few
  // that their gates are still in the cache when the recurrent product is added to them.
  int64_t block(const Layer& layer) const {
    constexpr int64_t kCache = 1 << 20;
    const int64_t weight = layer.x.size(2) * gates * int64_t(sizeof(T));
    const int64_t rows = std::max<int64_t>(kCache / (gates * int64_t(sizeof(T))), weight > kCache ? 512 : 256);
    return std::clamp<int64_t>(rows / batch, 1, steps);
  }
};

template <class T>
void forward_as(Layer& layer, bool keep) {
  const Loop<T> loop(layer);
  int64_t block = loop.steps;
  at::Tensor x;  // (T * B, I)
  std::optional<Product<T>> input;
  if (layer.x.defined()) {
    x = layer.x.view({-1, layer.x.size(2)});
    block = loop.block(layer);
    const int64_t slots = keep ? loop.steps : block;
    layer.gates = at::empty({slots, loop.batch, loop.gates}, layer.hs.options());
    if (loop.apart) layer.inner = at::empty({slots, loop.batch, loop.size}, layer.hs.options());
    input.emplace(layer.weight_ih_t, block * loop.batch, block < loop.steps);
  }
  const auto product = step_product<T>(layer.weight_hh_t, loop.batch, loop.steps);
  const SharedRows<T> rows(loop.kernel, loop.batch, loop.gates);
  const at::Tensor products = at::empty({loop.batch, loop.added + loop.apart}, layer.hs.options());
  for (int64_t first = 0; first < loop.steps; first += block) {
    const int64_t count = std::min(block, loop.steps - first);
    const int64_t slot = keep ? first : 0;
    if (x.defined()) {
      at::Tensor sums = layer.gates.view({-1, loop.gates});
      sums = sums.narrow(0, slot * loop.batch, count * loop.batch);
      input->run(x.narrow(0, first * loop.batch, count * loop.batch), sums, false);
    }
    for (int64_t i = 0; i < count; ++i) {
      Step<T> s = loop.at(layer, first + i, slot + i);
      s.products = data<T>(products);
      s.bias = data<T>(layer.bias);
      s.keep = keep;
      // Not added to the gates by the product itself, which makes small products up to a third slower.
      product.run(layer.hs, first + i, products, false);
      rows.forward(s);
    }
  }
}

// The gradients of W, x and U, each one product over all steps.
void weight_gradients(const Layer& layer, Gradients& grads, int64_t added, int64_t apart) {
  const at::Tensor d_gates = layer.gates.flatten(0, 1);
  const at::Tensor states = layer.hs.narrow(0, 0, layer.gates.size(0)).flatten(0, 1);
  grads.weight_hh = at::empty({added + apart, states.size(1)}, states.options());
  multiply(grads.weight_hh.narrow(0, 0, added), d_gates.narrow(1, 0, added).t(), states);
  if (apart) multiply(grads.weight_hh.narrow(0, added, apart), layer.inner.flatten(0, 1).t(), states);
  if (!layer.x.defined()) return;
  grads.weight_ih = at::empty({layer.weight_ih_t.size(1), layer.weight_ih_t.size(0)}, states.options());
  multiply(grads.weight_ih, d_gates.t(), layer.x.flatten(0, 1));
  if (!grads.wants_x) return;
  grads.x = at::empty_like(layer.x);
  multiply(grads.x.flatten(0, 1), d_gates, layer.weight_ih_t.t());
}

template <class T>
void backward_as(Layer& layer, Gradients& grads) {
  const Loop<T> loop(layer);
  const at::Tensor weight_hh = layer.weight_hh_t.t();
  const auto outer = step_product<T>(weight_hh.narrow(0, 0, loop.added), loop.batch, loop.steps);
  const auto inner = step_product<T>(weight_hh.narrow(0, loop.added, loop.apart), loop.batch, loop.steps);
  const at::Tensor added = layer.gates.narrow(2, 0, loop.added);
  if (grads.wants_extra && layer.extra.defined()) grads.extra = at::empty_like(layer.extra);
  SharedRows<T> rows(loop.kernel, loop.batch, loop.gates);
  rows.clear(loop.size, layer.x.defined(), layer.hs);
  for (int64_t t = loop.steps - 1; t >= 0; --t) {
    Step<T> s = loop.at(layer, t, t);
    s.dh = data<T>(grads.dh);
    s.dc = data<T>(grads.dc);
    if (grads.grad_hs.defined()) s.grad_h = data<T>(grads.grad_hs) + t * loop.batch * loop.size;
    if (grads.grad_cs.defined()) s.grad_c = data<T>(grads.grad_cs) + t * loop.batch * loop.size;
    if (grads.extra.defined()) s.d_extra = data<T>(grads.extra) + t * grads.extra.stride(0);
    rows.backward(s);
    // A cell without c leaves in dh what does not pass through U.
    outer.run(added, t, grads.dh, !loop.kernel.cell);
    if (loop.apart) inner.run(layer.inner, t, grads.dh, true);
  }
  grads.params = rows.d_params();
  grads.bias = rows.d_bias();
  weight_gradients(layer, grads, loop.added, loop.apart);
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
