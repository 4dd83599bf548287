// The operators torch.ops.fairseq_casrnn, registered with PyTorch's dispatcher so that
// torch.compile and torch.export can trace them. Their fake kernels are in
// fairseq_casrnn/recurrence/cpp_fakes.py.
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <array>
#include <cstring>
#include <optional>

#include "beam.h"
#include "cross_entropy.h"
#include "guard.h"
#include "loop.h"
#include "multiply.h"
#include "routed.h"
#include "sentence_state.h"
#include "tensors.h"

namespace casrnn {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Rows = at::OptionalIntArrayRef;

// A buffer (B + rows, H) whose first rows are the states `first`, (B, H).
Tensor states(const Tensor& first, int64_t rows) {
  Tensor all = at::empty({first.size(0) + rows, first.size(1)}, first.options());
  if (first.is_contiguous())
    std::memcpy(all.mutable_data_ptr(), first.const_data_ptr(), first.nbytes());
  else all.narrow(0, 0, first.size(0)).copy_(first);
  return all;
}

// The number of rows of each step, B unless given; all: N.
std::vector<int64_t> rows_of_steps(const Rows& rows, int64_t batch, int64_t all) {
  if (rows.has_value()) return rows->vec();
  TORCH_CHECK(batch > 0 && all > 0, "no step or no sequence");
  TORCH_CHECK(all % batch == 0, all, " rows are not whole steps of ", batch, " sequences");
  return std::vector<int64_t>(all / batch, batch);
}

Layer make_layer(c10::string_view kernel, const Tensor& weight_hh, const Tensor& h0,
                 const Maybe& c0, const Maybe& side, const Maybe& params, const Rows& rows,
                 int64_t all) {
  TORCH_CHECK(h0.dim() == 2 && weight_hh.dim() == 2, "the initial h has shape ", h0.sizes(),
              " and weight_hh ", weight_hh.sizes(), "; expected two dimensions");
  Layer layer;
  layer.name = std::string(kernel);
  layer.rows = rows_of_steps(rows, h0.size(0), all);
  layer.weight_hh_t = weight_hh.t();
  layer.side = dense(side);
  layer.params = dense(params);
  layer.hs = states(h0, all);
  if (c0.has_value()) layer.cs = states(*c0, all);
  return layer;
}

// Shapes as in Layer, weights not transposed, as in torch's modules; hs and cs are (B + N, H) with
// the initial state first. Without `keep`, gates and candidate are undefined.
std::tuple<Tensor, Tensor, Tensor, Tensor> layer_forward(
    c10::string_view kernel, const Tensor& x, const Tensor& weight_ih, const Tensor& bias,
    const Tensor& weight_hh, const Tensor& h0, const Maybe& c0, const Maybe& side,
    const Maybe& params, Rows rows, bool keep) {
  Layer layer = make_layer(kernel, weight_hh, h0, c0, side, params, rows, x.size(0));
  layer.x = x.contiguous();
  layer.weight_ih_t = weight_ih.t();
  layer.bias = bias.contiguous();
  forward(layer, keep);
  if (!keep) return {layer.hs, layer.cs, Tensor(), Tensor()};
  return {layer.hs, layer.cs, layer.gates, layer.candidate};
}

// The same for `gates` that come in as W x + b; they are overwritten with the activated gates.
std::tuple<Tensor, Tensor, Tensor> layer_forward_(c10::string_view kernel, const Tensor& gates,
                                                  const Tensor& weight_hh, const Tensor& h0,
                                                  const Maybe& c0, const Maybe& side,
                                                  const Maybe& params, Rows rows, bool keep) {
  TORCH_CHECK(gates.is_contiguous(), "gates are not contiguous");
  Layer layer = make_layer(kernel, weight_hh, h0, c0, side, params, rows, gates.size(0));
  layer.gates = gates;
  if (!c0.has_value()) layer.candidate = at::empty({gates.size(0), h0.size(1)}, h0.options());
  forward(layer, keep);
  return {layer.hs, layer.cs, layer.candidate};
}

// Overwrites gates and candidate with the gradients of their pre-activations. dh_n and dc_n are the
// gradients of the states after the last step. Gradients of missing inputs are undefined.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> layer_backward(
    c10::string_view kernel, const Maybe& x, const Maybe& weight_ih, const Tensor& gates,
    const Maybe& candidate, const Tensor& hs, const Maybe& cs, const Tensor& weight_hh,
    const Maybe& side, const Maybe& params, const Maybe& grad_hs, const Maybe& grad_cs,
    const Maybe& dh_n, const Maybe& dc_n, Rows rows, bool wants_x, bool wants_side) {
  const int64_t all = gates.size(0), batch = hs.size(0) - all;
  Layer layer;
  layer.name = std::string(kernel);
  layer.rows = rows_of_steps(rows, batch, all);
  layer.x = dense(x);
  if (x.has_value()) layer.weight_ih_t = weight_ih->t();
  layer.gates = gates;
  layer.candidate = plain(candidate);
  layer.hs = hs;
  layer.cs = plain(cs);
  layer.weight_hh_t = weight_hh.t();
  layer.side = dense(side);
  layer.params = dense(params);
  auto start = [&](const Maybe& last) {  // always a new buffer
    if (last.has_value()) return last->clone(at::MemoryFormat::Contiguous);
    return at::zeros({batch, hs.size(1)}, hs.options());
  };
  Gradients grads;
  grads.grad_hs = dense(grad_hs);
  grads.grad_cs = dense(grad_cs);
  grads.dh = start(dh_n);
  if (cs.has_value()) grads.dc = start(dc_n);
  grads.wants_x = wants_x;
  grads.wants_side = wants_side;
  backward(layer, grads);
  return {grads.x,  grads.weight_ih, grads.bias, grads.weight_hh,
          grads.dh, grads.dc,        grads.side, grads.params};
}

// x: (T, B, I). cells: (T, B) int64, the one cell of a mixture to compute for each input. Returns
// hs and cs, (T + 1, B, H) each, with the initial state first.
std::tuple<Tensor, Tensor> routed_layer(const Tensor& x, const Tensor& weight_ih,
                                        const Tensor& bias, const Tensor& weight_hh,
                                        const Tensor& h0, const Tensor& c0, const Tensor& cells) {
  auto buffer = [&](const Tensor& first) {
    return states(first, x.size(0) * first.size(0)).view({-1, first.size(0), first.size(1)});
  };
  Routed layer{x.contiguous(),     weight_ih.t(), bias.contiguous(), weight_hh.t(),
               cells.contiguous(), buffer(h0),    buffer(c0)};
  routed_forward(layer);
  return {layer.hs, layer.cs};
}

// The loss with and without smoothing, and the gradients of the former by x, weight and bias.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> run_cross_entropy(
    const Tensor& x, const Tensor& weight, const Maybe& bias, const Tensor& target,
    double smoothing, int64_t pad, std::array<bool, 3> wants) {
  const auto found = cross_entropy(x.resolve_neg(), weight.resolve_neg(), dense(bias).resolve_neg(),
                                   target, smoothing, pad, wants);
  auto scalar = [&](double value) { return at::scalar_tensor(value, x.options()); };
  return {scalar(found.smoothed), scalar(found.plain), found.grads[0], found.grads[1],
          found.grads[2]};
}

// a · b + bias, (M, K), (K, N) and (N).
Tensor mm(const Tensor& a, const Tensor& b, const Maybe& bias) {
  const Tensor y = at::empty({a.size(0), b.size(1)}, a.options());
  multiply(y, a.resolve_neg(), b.resolve_neg(), plain(bias));
  return y;
}

// y += a · b.
void add_mm_(const Tensor& y, const Tensor& a, const Tensor& b) { multiply(y, a, b, {}, {}, true); }

std::tuple<Tensor, Tensor> run_window_concat(const Tensor& h, int64_t window, IntArrayRef counts) {
  return window_concat(h, window, counts.vec());
}

Tensor run_window_concat_backward(const Tensor& d_around, const Tensor& d_total, int64_t window,
                                  IntArrayRef counts) {
  return window_concat_backward(d_around, d_total, window, counts.vec());
}

std::tuple<Tensor, Tensor> run_mix_words(const Tensor& gates, const Tensor& gx, const Tensor& gg,
                                         const Tensor& c, const Tensor& nodes, IntArrayRef counts) {
  return mix_words(gates, gx, gg, c, nodes, counts.vec());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> run_mix_words_backward(
    const Tensor& gates, const Tensor& c, const Tensor& nodes, const Tensor& new_c,
    const Tensor& grad_h, const Tensor& grad_c, IntArrayRef counts) {
  return mix_words_backward(gates, c, nodes, new_c, grad_h, grad_c, counts.vec());
}

std::tuple<Tensor, Tensor> run_gather_words(const Tensor& gates, const Tensor& gg, const Tensor& c,
                                            IntArrayRef counts) {
  return gather_words(gates, gg, c, counts.vec());
}

std::tuple<Tensor, Tensor, Tensor> run_gather_words_backward(const Tensor& gates, const Tensor& c,
                                                             const Tensor& grad_cells,
                                                             const Tensor& grad_shares,
                                                             IntArrayRef counts) {
  return gather_words_backward(gates, c, grad_cells, grad_shares, counts.vec());
}

// A kernel, called without autograd and autocast.
template <auto function>
struct Guarded;

template <class Result, class... Args, Result (*function)(Args...)>
struct Guarded<function> {
  static Result call(Args... args) {
    const NoAutogradGuard guard;
    return function(args...);
  }
};

// Defines the operator of that schema. An autograd.Function in Python has its gradient, and calls
// another operator for it, so that the dispatcher's autograd keys fall through.
template <auto function>
void define(torch::Library& m, const char* schema) {
  const std::string text = schema;
  const std::string name = text.substr(0, text.find('('));
  m.def(schema);
  m.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CPU, &Guarded<function>::call));
  m.impl(name.c_str(),
         torch::dispatch(c10::DispatchKey::Autograd, torch::CppFunction::makeFallthrough()));
}

}  // namespace

TORCH_LIBRARY(fairseq_casrnn, m) {
  define<&layer_forward>(m,
                         "layer_forward(str kernel, Tensor x, Tensor weight_ih, Tensor bias, "
                         "Tensor weight_hh, Tensor h0, "
                         "Tensor? c0, Tensor? side, Tensor? params, int[]? rows, bool keep) -> "
                         "(Tensor hs, Tensor cs, Tensor gates, Tensor candidate)");
  define<&layer_forward_>(
      m,
      "layer_forward_(str kernel, Tensor(a!) gates, Tensor weight_hh, Tensor h0, Tensor? c0, "
      "Tensor? side, Tensor? params, int[]? rows, bool keep) -> (Tensor hs, Tensor cs, Tensor "
      "candidate)");
  define<&layer_backward>(
      m,
      "layer_backward(str kernel, Tensor? x, Tensor? weight_ih, Tensor(a!) gates, Tensor(b!)? "
      "candidate, "
      "Tensor hs, Tensor? cs, Tensor weight_hh, Tensor? side, Tensor? params, Tensor? grad_hs, "
      "Tensor? grad_cs, Tensor? dh_n, Tensor? dc_n, int[]? rows, bool wants_x, bool wants_side) -> "
      "(Tensor dx, Tensor d_weight_ih, Tensor d_bias, Tensor d_weight_hh, Tensor dh, Tensor dc, "
      "Tensor d_side, Tensor d_params)");
  define<&routed_layer>(m,
                        "routed_layer(Tensor x, Tensor weight_ih, Tensor bias, Tensor weight_hh, "
                        "Tensor h0, Tensor c0, "
                        "Tensor cells) -> (Tensor hs, Tensor cs)");
  define<&mm>(m, "mm(Tensor a, Tensor b, Tensor? bias) -> Tensor");
  define<&add_mm_>(m, "add_mm_(Tensor(a!) y, Tensor a, Tensor b) -> ()");
  define<&run_cross_entropy>(
      m,
      "cross_entropy(Tensor x, Tensor weight, Tensor? bias, Tensor target, float smoothing, int "
      "pad, "
      "bool[3] wants) -> (Tensor loss, Tensor plain, Tensor dx, Tensor d_weight, Tensor d_bias)");
  define<&run_window_concat>(
      m, "window_concat(Tensor h, int window, int[] counts) -> (Tensor around, Tensor total)");
  define<&run_window_concat_backward>(m,
                                      "window_concat_backward(Tensor d_around, Tensor d_total, int "
                                      "window, int[] counts) -> Tensor");
  define<&run_mix_words>(
      m,
      "mix_words_(Tensor(a!) gates, Tensor gx, Tensor gg, Tensor c, Tensor nodes, int[] counts) -> "
      "(Tensor h, Tensor c)");
  define<&run_mix_words_backward>(
      m,
      "mix_words_backward(Tensor gates, Tensor c, Tensor nodes, Tensor new_c, Tensor grad_h, "
      "Tensor grad_c, int[] counts) -> (Tensor d_gates, Tensor d_gg, Tensor d_c, Tensor d_nodes)");
  define<&run_gather_words>(m,
                            "gather_words_(Tensor(a!) gates, Tensor gg, Tensor c, int[] counts) -> "
                            "(Tensor cells, Tensor shares)");
  define<&run_gather_words_backward>(
      m,
      "gather_words_backward(Tensor gates, Tensor c, Tensor grad_cells, Tensor grad_shares, "
      "int[] counts) -> (Tensor d_gates, Tensor d_gg, Tensor d_c)");
}

}  // namespace casrnn
