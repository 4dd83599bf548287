// The Python module fairseq_casrnn._cpp: facts about this build, and what cannot be an operator
// (ops.cpp) because it has state: the decoder's buffers and steps, and a product's packed factor.
// Only fairseq_casrnn/recurrence calls it.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <optional>

#include "beam.h"
#include "decoder.h"
#include "guard.h"
#include "kernels.h"
#include "multiply.h"
#include "panels.h"

namespace casrnn {
namespace {

using at::Tensor;

DecoderLayer make_layer(const std::string& kernel, const Maybe& weight_ih_t,
                        const Tensor& weight_hh_t, const Maybe& bias, const Maybe& params,
                        const Maybe& attention, const Maybe& gates, const Maybe& candidate,
                        const Maybe& mixes, const Tensor& hs, const Maybe& cs, const Maybe& drop,
                        const Maybe& up) {
  const NoAutogradGuard guard;
  return {kernel,           plain(weight_ih_t), weight_hh_t,      dense(bias),  dense(params),
          plain(attention), plain(gates),       plain(candidate), plain(mixes), hs,
          plain(cs),        dense(drop),        plain(up)};
}

Decoder make_decoder(const std::vector<DecoderLayer>& layers, const Tensor& keys,
                     const Tensor& values, const Maybe& mask, const Maybe& source,
                     const Maybe& weight_in_t, const Tensor& weight_out_t, const Maybe& drop_out,
                     const Tensor& feeds, const Maybe& outs, const Maybe& alphas,
                     std::optional<double> temperature) {
  const NoAutogradGuard guard;
  return {layers,      plain(weight_in_t), keys.contiguous(), values.contiguous(),
          dense(mask), dense(source),      weight_out_t,      dense(drop_out),
          feeds,       plain(outs),        plain(alphas),     temperature};
}

void run_decode_forward(Decoder decoder, bool keep) {
  const NoAutogradGuard guard;
  decode_forward(decoder, keep);
}

// dh, dc: (B, H) by layer, zeros, which become the gradients of the initial state. mixes: by layer.
// Returns the gradients of the bias and of the params, by layer.
std::tuple<std::vector<Tensor>, std::vector<Tensor>> run_decode_backward(
    Decoder decoder, const Maybe& grad_out, const Maybe& grad_alpha, const Tensor& d_pre,
    const Tensor& d_scores, const std::vector<Tensor>& dh, const std::vector<Tensor>& dc,
    const std::vector<Maybe>& mixes) {
  const NoAutogradGuard guard;
  DecoderGradients grads{dense(grad_out), dense(grad_alpha), d_pre, d_scores, dh, dc, {}, {}, {}};
  for (const auto& tensor : mixes) grads.mixes.push_back(plain(tensor));
  decode_backward(decoder, grads);
  return {grads.bias, grads.params};
}

Factor make_factor(const Tensor& b, const Tensor& a, int64_t products, bool inference) {
  TORCH_CHECK(products > 0, products, " products");
  const NoAutogradGuard guard;
  return Factor(b, a, products, inference);
}

Tensor run_factor(const Factor& factor, const Tensor& a, const Maybe& bias) {
  const NoAutogradGuard guard;
  const Tensor y = at::empty({a.size(0), factor.columns()}, a.options());
  factor.multiply(y, a, dense(bias));
  return y;
}

// penalties: words and what is subtracted from their log-probabilities.
std::tuple<Tensor, Tensor> run_best_next(const Factor& vocabulary, const Tensor& x,
                                         const Maybe& bias, const Tensor& scores, int64_t count,
                                         const std::vector<std::pair<int64_t, float>>& penalties) {
  const NoAutogradGuard guard;
  std::vector<Penalty> all;
  for (const auto& [word, amount] : penalties) all.push_back({word, amount});
  return best_next(vocabulary, x, dense(bias), scores, count, all);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  namespace py = pybind11;
  using release = py::call_guard<py::gil_scoped_release>;
  using py::arg;
  m.doc() = "Compiled engine of fairseq_casrnn; see fairseq_casrnn.recurrence.cpp.";
  m.attr("torch_version") = TORCH_VERSION;
  m.attr("instruction_set") = instruction_set();
#ifdef INTRA_OP_PARALLEL  // ATen/Parallel.h runs everything on one thread without it
  m.attr("has_threads") = true;
#else
  m.attr("has_threads") = false;
#endif
  m.def("is_narrow", &is_narrow, arg("factor"), arg("rows"));
  m.def("can_quantise", &can_quantise);
  m.def("set_int8", &set_int8, arg("on"));
  m.def("is_quantised", &is_quantised, arg("factor"));

  py::class_<DecoderLayer>(m, "DecoderLayer")
      .def(py::init(&make_layer), py::kw_only(), arg("kernel"), arg("weight_ih_t"),
           arg("weight_hh_t"), arg("bias"), arg("params"), arg("attention"),
           arg("gates") = py::none(), arg("candidate") = py::none(), arg("mixes"), arg("hs"),
           arg("cs"), arg("drop") = py::none(), arg("up") = py::none());
  py::class_<Decoder>(m, "Decoder")
      .def(py::init(&make_decoder), py::kw_only(), arg("layers"), arg("keys"), arg("values"),
           arg("mask"), arg("source") = py::none(), arg("weight_in_t") = py::none(),
           arg("weight_out_t"), arg("drop_out") = py::none(), arg("feeds"),
           arg("outs") = py::none(), arg("alphas") = py::none(), arg("temperature") = py::none());
  m.def("decode_forward", &run_decode_forward, release(), arg("decoder"), arg("keep"));
  m.def("decode_backward", &run_decode_backward, release(), arg("decoder"), py::kw_only(),
        arg("grad_out"), arg("grad_alpha"), arg("d_pre"), arg("d_scores"), arg("dh"), arg("dc"),
        arg("mixes"));

  // Not an operator: a step of beam search takes a few microseconds, and the dispatcher another
  // one.
  py::class_<DecoderSteps>(m, "DecoderSteps")
      .def(py::init<Decoder>(), arg("decoder"))
      .def(
          "reorder",
          [](DecoderSteps& steps, const Tensor& order) {
            const NoAutogradGuard guard;
            steps.reorder(order);
          },
          arg("order"))
      .def(
          "step",
          [](DecoderSteps& steps, const Tensor& embedded, const Maybe& routed) {
            const NoAutogradGuard guard;
            return steps.step(embedded, plain(routed));
          },
          release(), arg("embedded"), arg("routed"));
  py::class_<Factor>(m, "Factor")
      .def(py::init(&make_factor), release(), arg("b"), arg("a"), arg("products"),
           arg("inference") = false)
      .def("mm", &run_factor, release(), arg("a"), arg("bias") = py::none());
  m.def("best_next", &run_best_next, release(), arg("vocabulary"), arg("x"), arg("bias"),
        arg("scores"), arg("count"), arg("penalties"));
}

}  // namespace casrnn
