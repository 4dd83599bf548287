// What Python sees of the engine; fairseq_casrnn/recurrence/cpp.py is its only caller.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <optional>

#include "kernels.h"
#include "loop.h"

namespace casrnn {
namespace {

using at::Tensor;
using Maybe = std::optional<Tensor>;

Tensor dense(const Maybe& tensor) {
  return tensor.has_value() ? tensor->contiguous() : Tensor();
}

// A buffer (T + 1, B, H) whose first row of states is `first`.
Tensor states(const Tensor& gates, const Tensor& first) {
  Tensor all = at::empty({gates.size(0) + 1, first.size(0), first.size(1)}, gates.options());
  all.select(0, 0).copy_(first);
  return all;
}

// Returns (hs, cs, inner), hs and cs (T + 1, B, H) with the initial state first; overwrites gates.
std::tuple<Tensor, Tensor, Tensor> run_forward(
    const std::string& name, const Tensor& gates, const Tensor& weight_hh, const Maybe& weight_t,
    const Tensor& h0, const Maybe& c0, const Maybe& extra, const Maybe& params) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Layer layer;
  layer.name = name;
  layer.gates = gates;
  layer.weight_hh = weight_hh;
  layer.weight_t = dense(weight_t);
  layer.extra = dense(extra);
  layer.params = dense(params);
  layer.hs = states(gates, h0);
  if (c0.has_value()) layer.cs = states(gates, *c0);
  else layer.inner = at::empty({gates.size(0), h0.size(0), h0.size(1)}, gates.options());
  forward(layer);
  return {layer.hs, layer.cs, layer.inner};
}

// Returns the gradients (weight_hh, h0, c0, extra, params); overwrites gates and inner.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> run_backward(
    const std::string& name, const Tensor& gates, const Maybe& inner, const Tensor& hs, const Maybe& cs,
    const Tensor& weight_hh, const Maybe& extra, const Maybe& params, const Maybe& grad_hs,
    const Maybe& grad_cs, const Maybe& dh, const Maybe& dc, bool wants_extra) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Layer layer;
  layer.name = name;
  layer.gates = gates;
  layer.inner = dense(inner);
  layer.hs = hs;
  layer.cs = dense(cs);
  layer.weight_hh = weight_hh.contiguous();
  layer.extra = dense(extra);
  layer.params = dense(params);
  auto start = [&](const Maybe& last) {  // always a buffer of our own
    if (last.has_value()) return last->clone(at::MemoryFormat::Contiguous);
    return at::zeros({hs.size(1), hs.size(2)}, hs.options());
  };
  Gradients grads;
  grads.grad_hs = dense(grad_hs);
  grads.grad_cs = dense(grad_cs);
  grads.dh = start(dh);
  if (cs.has_value()) grads.dc = start(dc);
  grads.wants_extra = wants_extra;
  backward(layer, grads);
  return {grads.weight_hh, grads.dh, grads.dc, grads.extra, grads.params};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  namespace py = pybind11;
  using release = py::call_guard<py::gil_scoped_release>;
  m.doc() = "Compiled loop over time of fairseq_casrnn; see fairseq_casrnn.recurrence.cpp.";
  m.attr("torch_version") = TORCH_VERSION;
  m.attr("instruction_set") = instruction_set();
  m.def("forward", &run_forward, release());
  m.def("backward", &run_backward, release());
}

}  // namespace casrnn
