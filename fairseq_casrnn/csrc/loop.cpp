#include "product.h"  // first: it chooses the instruction set

#include "loop.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "kernels.h"

namespace casrnn {
namespace {

template <class T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

// One layer's buffers as pointers, and its recurrent products.
template <class T>
struct Loop {
  const Kernel<T>& kernel;
  int64_t steps, batch, size, cells;
  int64_t added;  // columns of U h that are added to the gates; the others make inner
  Sequence<T> gates, products, inner, hs, cs, extra;
  T* params;

  explicit Loop(const Layer& layer)
      : kernel(casrnn::kernel<T>(layer.name)),
        steps(layer.gates.size(0)),
        batch(layer.gates.size(1)),
        size(layer.hs.size(2)),
        cells(kernel.mixture ? layer.extra.size(2) : 1),
        added((kernel.products * cells - kernel.inner) * size),
        gates{layer.gates},
        products{layer.gates.narrow(2, 0, added)},
        inner{layer.inner},
        hs{layer.hs},
        cs{layer.cs},
        extra{layer.extra},
        params(data<T>(layer.params)) {
    TORCH_CHECK(layer.gates.size(2) == kernel.blocks * cells * size, "gates have the wrong width");
    TORCH_CHECK(layer.weight_hh.size(0) == kernel.products * cells * size &&
                layer.weight_hh.size(1) == size, "weight_hh has the wrong shape");
  }

  Step<T> at(int64_t t) const {
    Step<T> s{};
    s.batch = batch, s.size = size, s.cells = cells;
    s.gates = gates.at(t);
    s.params = params;
    s.h_prev = hs.at(t), s.h = hs.at(t + 1);
    if (kernel.cell) s.c_prev = cs.at(t), s.c = cs.at(t + 1);
    if (kernel.inner) s.inner = inner.at(t);
    if (extra.all.defined()) s.extra = extra.at(t);
    return s;
  }
};

template <class T>
void forward_as(Layer& layer) {
  const Loop<T> loop(layer);
  const at::Tensor weight_t = layer.weight_t.defined() ? layer.weight_t : layer.weight_hh.t();
  const int64_t inner = loop.kernel.inner ? loop.size : 0;
  auto part = [&](int64_t first, int64_t count) {
    at::Tensor columns = weight_t.narrow(1, first, count);
    // A transposed view costs a small product half as much again, at every step.
    if (loop.steps > 1 && !Product<T>::is_small(columns, loop.batch)) columns = columns.contiguous();
    return Product<T>(columns, loop.batch);
  };
  const Product<T> outer_product = part(0, loop.added), inner_product = part(loop.added, inner);
  for (int64_t t = 0; t < loop.steps; ++t) {
    multiply(outer_product, loop.hs, t, loop.products, t, true);
    if (inner) multiply(inner_product, loop.hs, t, loop.inner, t, false);
    loop.kernel.forward(loop.at(t), 0, loop.batch);
  }
}

// The gradient of U: one product of all steps' gate gradients with all states.
void weight_gradient(const Layer& layer, Gradients& grads, int64_t added) {
  const at::Tensor states = layer.hs.narrow(0, 0, layer.gates.size(0)).flatten(0, 1);
  const int64_t rest = layer.weight_hh.size(0) - added;
  grads.weight_hh = at::empty_like(layer.weight_hh);
  at::Tensor part = grads.weight_hh.narrow(0, 0, added);
  at::mm_out(part, layer.gates.flatten(0, 1).narrow(1, 0, added).t(), states);
  if (rest) {
    part = grads.weight_hh.narrow(0, added, rest);
    at::mm_out(part, layer.inner.flatten(0, 1).t(), states);
  }
}

template <class T>
void backward_as(Layer& layer, Gradients& grads) {
  const Loop<T> loop(layer);
  const auto& kernel = loop.kernel;
  const int64_t inner = kernel.inner ? loop.size : 0;
  const Product<T> outer_product(layer.weight_hh.narrow(0, 0, loop.added), loop.batch);
  const Product<T> inner_product(layer.weight_hh.narrow(0, loop.added, inner), loop.batch);
  const Sequence<T> dh{grads.dh.unsqueeze(0)}, grad_hs{grads.grad_hs}, grad_cs{grads.grad_cs};
  if (grads.wants_extra && layer.extra.defined()) grads.extra = at::empty_like(layer.extra);
  if (kernel.grads) grads.params = at::zeros({kernel.grads, loop.size}, layer.gates.options());
  for (int64_t t = loop.steps - 1; t >= 0; --t) {
    Step<T> s = loop.at(t);
    s.dh = dh.at(0);
    s.dc = data<T>(grads.dc);
    if (grad_hs.all.defined()) s.grad_h = grad_hs.at(t);
    if (grad_cs.all.defined()) s.grad_c = grad_cs.at(t);
    if (grads.extra.defined()) s.d_extra = Sequence<T>{grads.extra}.at(t);
    s.d_params = data<T>(grads.params);
    kernel.backward(s, 0, loop.batch);
    // A cell without c leaves in dh what does not pass through U.
    multiply(outer_product, loop.products, t, dh, 0, !kernel.cell);
    if (inner) multiply(inner_product, loop.inner, t, dh, 0, true);
  }
  weight_gradient(layer, grads, loop.added);
}

}  // namespace

void forward(Layer& layer) {
  AT_DISPATCH_FLOATING_TYPES(layer.gates.scalar_type(), "casrnn::forward",
                             [&] { forward_as<scalar_t>(layer); });
}

void backward(Layer& layer, Gradients& grads) {
  AT_DISPATCH_FLOATING_TYPES(layer.gates.scalar_type(), "casrnn::backward",
                             [&] { backward_as<scalar_t>(layer, grads); });
}

}  // namespace casrnn
