// What Python sees of the engine; fairseq_casrnn/recurrence/cpp.py is its only caller.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <array>
#include <cstring>
#include <optional>

#include "beam.h"
#include "cross_entropy.h"
#include "decoder.h"
#include "kernels.h"
#include "log_probs.h"
#include "loop.h"
#include "multiply.h"
#include "panels.h"
#include "routed.h"
#include "sentence_state.h"

namespace casrnn {
namespace {

using at::Tensor;
using Maybe = std::optional<Tensor>;

// No autograd in here, and no autocast: sums over time keep their precision.
struct Quiet {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

Tensor dense(const Maybe& tensor) {
  return tensor.has_value() ? tensor->contiguous() : Tensor();
}

// A buffer (B + rows, H) that begins with the states `first`, (B, H).
Tensor states(const Tensor& first, int64_t rows) {
  Tensor all = at::empty({first.size(0) + rows, first.size(1)}, first.options());
  if (first.is_contiguous()) std::memcpy(all.mutable_data_ptr(), first.const_data_ptr(), first.nbytes());
  else all.narrow(0, 0, first.size(0)).copy_(first);
  return all;
}

// Either x with weight_ih_t and bias, or gates, which are overwritten; rows and shapes as in Layer.
// Returns (hs, cs, gates, candidate); hs and cs are (B + N, H) with the initial state first.
std::tuple<Tensor, Tensor, Tensor, Tensor> run_forward(
    const std::string& name, const std::vector<int64_t>& rows, const Maybe& x, const Maybe& weight_ih_t, const Maybe& bias,
    const Maybe& gates, const Tensor& weight_hh_t, const Tensor& h0, const Maybe& c0,
    const Maybe& side, const Maybe& params, bool keep) {
  const Quiet quiet;
  Layer layer;
  layer.name = name;
  layer.rows = rows;
  layer.x = dense(x);
  if (x.has_value()) layer.weight_ih_t = *weight_ih_t;
  layer.bias = dense(bias);
  layer.weight_hh_t = weight_hh_t;
  layer.gates = gates.value_or(Tensor());
  layer.side = dense(side);
  layer.params = dense(params);
  const int64_t all = (x.has_value() ? *x : *gates).size(0);
  layer.hs = states(h0, all);
  if (c0.has_value()) layer.cs = states(*c0, all);
  else if (gates.has_value()) layer.candidate = at::empty({all, h0.size(1)}, h0.options());
  forward(layer, keep);
  return {layer.hs, layer.cs, layer.gates, layer.candidate};
}

// x: (T, B, I). cells: (T, B) of int64, the one cell of a mixture that is computed. Returns (hs, cs), each
// (T + 1, B, H) with the initial state first.
std::tuple<Tensor, Tensor> run_routed(const Tensor& x, const Tensor& weight_ih_t, const Tensor& bias,
                                      const Tensor& weight_hh_t, const Tensor& h0, const Tensor& c0,
                                      const Tensor& cells) {
  const Quiet quiet;
  auto buffer = [&](const Tensor& first) {
    return states(first, x.size(0) * first.size(0)).view({-1, first.size(0), first.size(1)});
  };
  Routed layer{x.contiguous(), weight_ih_t, bias.contiguous(), weight_hh_t, cells.contiguous(),
               buffer(h0), buffer(c0)};
  routed_forward(layer);
  return {layer.hs, layer.cs};
}

// Returns the gradients (x, weight_ih, bias, weight_hh, h0, c0, side, params); overwrites gates and
// candidate. The gradients of the gates' sums are left in gates.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> run_backward(
    const std::string& name, const std::vector<int64_t>& rows, const Maybe& x, const Maybe& weight_ih_t,
    const Tensor& gates, const Maybe& candidate, const Tensor& hs, const Maybe& cs, const Tensor& weight_hh_t,
    const Maybe& side, const Maybe& params, const Maybe& grad_hs, const Maybe& grad_cs,
    const Maybe& dh, const Maybe& dc, bool wants_x, bool wants_side) {
  const Quiet quiet;
  Layer layer;
  layer.name = name;
  layer.rows = rows;
  layer.x = dense(x);
  if (x.has_value()) layer.weight_ih_t = *weight_ih_t;
  layer.gates = gates;
  layer.candidate = dense(candidate);
  layer.hs = hs;
  layer.cs = dense(cs);
  layer.weight_hh_t = weight_hh_t;
  layer.side = dense(side);
  layer.params = dense(params);
  auto start = [&](const Maybe& last) {  // always a buffer of our own
    if (last.has_value()) return last->clone(at::MemoryFormat::Contiguous);
    return at::zeros({rows.at(0), hs.size(1)}, hs.options());
  };
  Gradients grads;
  grads.grad_hs = dense(grad_hs);
  grads.grad_cs = dense(grad_cs);
  grads.dh = start(dh);
  if (cs.has_value()) grads.dc = start(dc);
  grads.wants_x = wants_x;
  grads.wants_side = wants_side;
  backward(layer, grads);
  return {grads.x, grads.weight_ih, grads.bias, grads.weight_hh,
          grads.dh, grads.dc, grads.side, grads.params};
}

// The fields of a DecoderLayer, in their order.
using LayerFields = std::tuple<std::string, Maybe, Tensor, Maybe, Maybe, Maybe, Maybe, Maybe, Maybe, Tensor,
                               Maybe, Maybe, Maybe>;

// Keys, values, mask, source, weight_out_t, drop_out, feeds, outs, alphas, temperature.
using DecoderFields = std::tuple<Tensor, Tensor, Maybe, Maybe, Tensor, Maybe, Tensor, Maybe, Maybe,
                                 std::optional<double>>;

Tensor plain(const Maybe& tensor) { return tensor.value_or(Tensor()); }

Decoder make_decoder(const std::vector<LayerFields>& layers, const DecoderFields& fields) {
  Decoder decoder;
  for (const auto& [name, w_ih_t, w_hh_t, bias, params, attention, gates, candidate, mixes, hs, cs, drop, up] :
       layers)
    decoder.layers.push_back({name, plain(w_ih_t), w_hh_t, dense(bias), dense(params), plain(attention),
                              plain(gates), plain(candidate), plain(mixes), hs, plain(cs), dense(drop),
                              plain(up)});
  const auto& [keys, values, mask, source, weight_out_t, drop_out, feeds, outs, alphas, temperature] = fields;
  decoder.keys = keys.contiguous();
  decoder.values = values.contiguous();
  decoder.mask = dense(mask);
  decoder.source = dense(source);
  decoder.weight_out_t = weight_out_t;
  decoder.drop_out = dense(drop_out);
  decoder.feeds = feeds;
  decoder.outs = plain(outs);
  decoder.alphas = plain(alphas);
  decoder.temperature = temperature;
  return decoder;
}

void run_decode_forward(const std::vector<LayerFields>& layers, const DecoderFields& fields) {
  const Quiet quiet;
  Decoder decoder = make_decoder(layers, fields);
  decode_forward(decoder, true);
}

// dh, dc: (B, H) by layer, zeros; become the gradients of the initial state. mixes: by layer. Returns
// those of the bias and of the params, by layer.
std::tuple<std::vector<Tensor>, std::vector<Tensor>> run_decode_backward(
    const std::vector<LayerFields>& layers, const DecoderFields& fields, const Maybe& grad_out,
    const Maybe& grad_alpha, const Tensor& d_pre, const Tensor& d_scores, const std::vector<Tensor>& dh,
    const std::vector<Tensor>& dc, const std::vector<Maybe>& mixes) {
  const Quiet quiet;
  Decoder decoder = make_decoder(layers, fields);
  DecoderGradients grads{dense(grad_out), dense(grad_alpha), d_pre, d_scores, dh, dc, {}, {}, {}};
  for (const auto& tensor : mixes) grads.mixes.push_back(plain(tensor));
  decode_backward(decoder, grads);
  return {grads.bias, grads.params};
}

// (smoothed, plain, gradients by x, weight and bias).
std::tuple<double, double, std::array<Maybe, 3>> run_cross_entropy(const Tensor& x, const Tensor& weight,
                                                                   const Maybe& bias, const Tensor& target,
                                                                   double smoothing, int64_t pad,
                                                                   const std::array<bool, 3>& wants) {
  const Quiet quiet;
  const auto found = cross_entropy(x.resolve_neg(), weight.resolve_neg(), dense(bias).resolve_neg(), target,
                                   smoothing, pad, wants);
  std::array<Maybe, 3> grads;
  for (int i = 0; i < 3; ++i)
    if (found.grads[i].defined()) grads[i] = found.grads[i];
  return {found.smoothed, found.plain, grads};
}

// a · b + bias, (M, K), (K, N) and (N).
Tensor run_mm(const Tensor& a, const Tensor& b, const Maybe& bias) {
  const Quiet quiet;
  const Tensor y = at::empty({a.size(0), b.size(1)}, a.options());
  multiply(y, a.resolve_neg(), b.resolve_neg(), plain(bias));
  return y;
}

// y += a · b.
void run_add_mm(const Tensor& y, const Tensor& a, const Tensor& b) {
  const Quiet quiet;
  multiply(y, a, b, {}, {}, true);
}

Factor make_factor(const Tensor& b, const Tensor& a, int64_t products) {
  TORCH_CHECK(products > 0, products, " products");
  const Quiet quiet;
  return Factor(b, a, products);
}

Tensor run_factor(const Factor& factor, const Tensor& a) {
  const Quiet quiet;
  const Tensor y = at::empty({a.size(0), factor.columns()}, a.options());
  factor.multiply(y, a);
  return y;
}

std::tuple<Tensor, bool> run_log_probs(const Tensor& x, const Tensor& weight, const Maybe& bias) {
  const Quiet quiet;
  return log_probs(x, weight, dense(bias));
}

std::tuple<Tensor, Tensor> run_best_sums(const Tensor& lprobs, const Tensor& scores, int64_t count) {
  const Quiet quiet;
  return best_sums(lprobs, scores, count);
}

// A function of tensors, called without autograd and autocast.
template <class Result, class... Tensors>
auto quietly(Result (*function)(Tensors...)) {
  return [function](Tensors... tensors) {
    const Quiet quiet;
    return function(tensors...);
  };
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  namespace py = pybind11;
  using release = py::call_guard<py::gil_scoped_release>;
  m.doc() = "Compiled loop over time of fairseq_casrnn; see fairseq_casrnn.recurrence.cpp.";
  m.attr("interface") = 15;  // INTERFACE there
  m.attr("torch_version") = TORCH_VERSION;
  m.attr("instruction_set") = instruction_set();
#ifdef INTRA_OP_PARALLEL  // of ATen/Parallel.h, which without it runs everything on one thread
  m.attr("has_threads") = true;
#else
  m.attr("has_threads") = false;
#endif
  m.def("forward", &run_forward, release());
  m.def("backward", &run_backward, release());
  m.def("routed", &run_routed, release());
  m.def("is_narrow", &is_narrow);
  m.def("mm", &run_mm, release());
  m.def("add_mm", &run_add_mm, release());
  m.def("cross_entropy", &run_cross_entropy, release());
  m.def("log_probs", &run_log_probs, release());
  m.def("best_sums", &run_best_sums, release());
  m.def("decode_forward", &run_decode_forward, release());
  m.def("decode_backward", &run_decode_backward, release());
  m.def("look_around", quietly(&look_around), release());
  m.def("look_around_backward", quietly(&look_around_backward), release());
  m.def("mix_words", quietly(&mix_words), release());
  m.def("mix_words_backward", quietly(&mix_words_backward), release());
  m.def("gather_words", quietly(&gather_words), release());
  m.def("gather_words_backward", quietly(&gather_words_backward), release());
  py::class_<Factor>(m, "Factor").def(py::init(&make_factor), release()).def("mm", &run_factor, release());
  py::class_<DecoderSteps>(m, "DecoderSteps")
      .def(py::init([](const std::vector<LayerFields>& layers, const DecoderFields& fields) {
        return DecoderSteps(make_decoder(layers, fields));
      }))
      .def("reorder", [](DecoderSteps& steps, const Tensor& order) {
        const Quiet quiet;
        steps.reorder(order);
      })
      .def("step", [](DecoderSteps& steps, const Tensor& gx, const Maybe& routed) {
        const Quiet quiet;
        return steps.step(gx, plain(routed));
      }, release());
}

}  // namespace casrnn
