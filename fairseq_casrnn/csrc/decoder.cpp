#include "product.h"  // first: it chooses the instruction set

#include "decoder.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <type_traits>

#include "attend.h"
#include "kernels.h"
#include "parallel.h"
#include "tensors.h"

namespace casrnn {
namespace {

using at::Tensor;

struct Sizes {
  int64_t steps, batch, size;
};

// The forward products of a layer, packed when they are first used.
template <class T>
struct LayerProducts {
  std::optional<Product<T>> ih, hh;
};

template <class T>
struct Products {
  std::vector<LayerProducts<T>> layers;
  std::optional<Product<T>> in, out;
};

template <class T>
class LayerLoop {
 public:
  LayerLoop(DecoderLayer& layer, const Sizes& sizes)
      : layer(layer),
        kernel(casrnn::kernel<T>(layer.name)),
        rows(kernel, sizes.batch, layer.gates.size(2)),
        sizes_(sizes),
        cells_(layer.mixes.defined() ? layer.mixes.size(2) : 1),
        fused_((kernel.products * cells_ - kernel.candidate) * sizes.size),
        separate_(kernel.candidate ? sizes.size : 0) {
    const auto [steps, batch, size] = sizes;
    const int64_t gates = kernel.blocks * cells_ * size;
    check("weight_ih", layer.weight_ih_t, {size, gates});
    check("weight_hh", layer.weight_hh_t, {size, fused_ + separate_});
    check("bias", layer.bias, {gates});
    check("params", layer.params, {kernel.params, size});
    check("gates", layer.gates, {steps, batch, gates});
    check("candidate", layer.candidate, {steps, batch, size});
    check("mixes", layer.mixes, {steps, batch, cells_});
    check("attention", layer.attention, {cells_, size});
    for (const auto* states : {&layer.hs, &layer.cs})
      check("a state", *states, {steps + 1, batch, size});
    for (const auto* scaled : {&layer.drop, &layer.up})
      check("a mask", *scaled, {steps, batch, size});
    TORCH_CHECK(layer.cs.defined() == kernel.cell, "c is missing, or there is none");
    TORCH_CHECK(layer.candidate.defined() == kernel.candidate, "candidate is missing, or unused");
    TORCH_CHECK(layer.mixes.defined() == kernel.mixture, "mixes are missing, or unused");
    TORCH_CHECK(layer.params.defined() == (kernel.params > 0), "params are missing, or unused");
    TORCH_CHECK(layer.drop.defined() == layer.up.defined(), "a dropout mask without its result");
  }

  // x: what the layer reads, (T, B, H); lower: the layer below, or null; many: whether the products
  // are used again.
  void forward(const Tensor& x, const LayerLoop* lower, int64_t t,
               std::optional<double> temperature, bool keep, LayerProducts<T>& packed, bool many) {
    if (!packed.hh) {
      if (layer.weight_ih_t.defined())
        packed.ih.emplace(layer.weight_ih_t, sizes_.batch, many, !keep);
      packed.hh.emplace(layer.weight_hh_t, sizes_.batch, many, !keep);
    }
    if (!products_.defined())
      products_ = at::empty({sizes_.batch, fused_ + separate_}, layer.hs.options());
    // The bottom layer's gates come in with the product with the embedding.
    if (packed.ih) packed.ih->run(x, t, layer.gates.select(0, t), lower == nullptr);
    packed.hh->run(layer.hs, t, products_, false);
    if (kernel.mixture) route(x, lower == nullptr, t, temperature);
    Step<T> s = at(lower, t);
    s.products = data<T>(products_);
    s.bias = data<T>(layer.bias);
    s.keep = keep;
    rows.forward(s);
    if (layer.up.defined())
      map(data<T>(layer.up, t), data<T>(layer.hs, t + 1), data<T>(layer.drop, t),
          sizes_.batch * sizes_.size, [](Vec<T> a, Vec<T> b) { return a * b; });
  }

  // dh, dc: of this step's state, then of the one before; writes dx (B, H) and d_mix (T, B, S).
  // upper: the layer above, or null; its dx and gradient of the lower cell are added to those of
  // this one.
  void backward(const LayerLoop* lower, LayerLoop* upper, int64_t t, const DecoderGradients& grads,
                int64_t k, std::optional<double> temperature) {
    if (!outer_) {
      const Tensor weight_hh = layer.weight_hh_t.t();
      const auto [steps, batch, _] = sizes_;
      outer_ = step_product<T>(weight_hh.narrow(0, 0, fused_), batch, steps);
      if (separate_)
        candidate_ = step_product<T>(weight_hh.narrow(0, fused_, separate_), batch, steps);
      input_ = step_product<T>(layer.weight_ih_t.t(), batch, steps);
      d_fused_ = layer.gates.narrow(2, 0, fused_);
      const int64_t width = kernel.mixture ? cells_ : sizes_.size;
      if (kernel.mixture || kernel.lower)
        d_side_ = at::empty({sizes_.batch, width}, layer.hs.options());
      rows.clear(sizes_.size, layer.bias.defined(), layer.hs);
      if (!dx.defined()) dx = at::empty({sizes_.batch, sizes_.size}, layer.hs.options());
    }
    Step<T> s = at(lower, t);
    s.dh = data<T>(grads.dh[k]);
    if (kernel.cell) s.dc = data<T>(grads.dc[k]);
    if (upper) {
      if (layer.drop.defined())
        map(data<T>(upper->dx), data<T>(upper->dx), data<T>(layer.drop, t),
            sizes_.batch * sizes_.size, [](Vec<T> a, Vec<T> b) { return a * b; });
      s.grad_h = data<T>(upper->dx);
      if (upper->kernel.lower) s.grad_c = data<T>(upper->d_side_);
    }
    s.d_side = data<T>(d_side_);
    rows.backward(s);
    // A cell without c leaves the part of the gradient that does not pass through U in dh.
    outer_->run(d_fused_, t, grads.dh[k], !kernel.cell);
    if (separate_) candidate_->run(layer.candidate, t, grads.dh[k], true);
    input_->run(layer.gates, t, dx, false);
    if (kernel.mixture) unroute(grads.mixes[k], t, temperature);
  }

  DecoderLayer& layer;
  const Kernel<T>& kernel;
  SharedRows<T> rows;
  Tensor dx;

 private:
  Step<T> at(const LayerLoop* lower, int64_t t) const {
    Step<T> s{};
    s.batch = sizes_.batch, s.size = sizes_.size, s.cells = cells_;
    s.gates = data<T>(layer.gates, t);
    s.candidate = data<T>(layer.candidate, t);
    s.params = data<T>(layer.params);
    s.h_prev = data<T>(layer.hs, t);
    s.h = data<T>(layer.hs, t + 1);
    s.c_prev = data<T>(layer.cs, t);
    s.c = data<T>(layer.cs, t + 1);
    if (kernel.lower) s.side = data<T>(lower->layer.cs, t + 1);
    if (kernel.mixture) s.side = data<T>(layer.mixes, t);
    return s;
  }

  void route(const Tensor& x, bool begun, int64_t t, std::optional<double> temperature) {
    Tensor scores = layer.mixes.select(0, t);
    if (layer.attention.defined()) {
      const Tensor weight = layer.attention.t();
      if (begun) at::addmm_out(scores, scores, x.select(0, t), weight);
      else at::mm_out(scores, x.select(0, t), weight);
    }
    T* row = data<T>(layer.mixes, t);
    for (int64_t b = 0; b < sizes_.batch; ++b, row += cells_) {
      if (temperature) {
        softmax(row, cells_, T(*temperature));
      } else {
        const int64_t best = std::max_element(row, row + cells_) - row;
        for (int64_t i = 0; i < cells_; ++i) row[i] = i == best;
      }
    }
  }

  // Adds what comes through the routing to dx.
  void unroute(const Tensor& d_mixes, int64_t t, std::optional<double> temperature) {
    T* d_scores = data<T>(d_mixes, t);
    const T* d_alpha = data<T>(d_side_);
    const T* alpha = data<T>(layer.mixes, t);
    if (!temperature) {  // hard routing has no gradient
      std::fill_n(d_scores, sizes_.batch * cells_, T(0));
      return;
    }
    for (int64_t at = 0; at < sizes_.batch * cells_; at += cells_)
      softmax_backward(d_scores + at, alpha + at, d_alpha + at, cells_, T(*temperature));
    at::addmm_out(dx, dx, d_mixes.select(0, t), layer.attention);
  }

  const Sizes sizes_;
  const int64_t cells_;
  const int64_t fused_, separate_;  // columns of U h that are added to the gates, and the others
  std::optional<Product<T>> outer_, candidate_, input_;
  Tensor products_, d_fused_, d_side_;
};

template <class T>
class Loop {
 public:
  explicit Loop(Decoder& decoder)
      : d_(decoder), sizes_{d_.alphas.size(0), d_.feeds.size(1), d_.feeds.size(2)} {
    const auto [steps, batch, size] = sizes_;
    const int64_t rows = d_.source.defined() ? d_.keys.size(0) : batch;
    const int64_t positions = d_.keys.size(1);
    check("keys", d_.keys, {rows, positions, size});
    check("values", d_.values, {rows, positions, size});
    check("mask", d_.mask, {rows, positions});
    check("source", d_.source, {batch});
    check("weight_out", d_.weight_out_t, {size, size});
    check("drop_out", d_.drop_out, {steps, batch, size});
    check("feeds", d_.feeds, {steps + 1, batch, size});
    check("outs", d_.outs, {steps, batch, size});
    check("alphas", d_.alphas, {steps, batch, positions});
    layers_.reserve(d_.layers.size());
    for (auto& layer : d_.layers) {
      layers_.emplace_back(layer, sizes_);
      states_.push_back(layer.hs.narrow(0, 1, steps));
    }
  }

  void forward(bool keep, Products<T>& packed, bool many) {
    packed.layers.resize(layers_.size());
    if (!packed.out) packed.out.emplace(d_.weight_out_t, sizes_.batch, many, !keep);
    for (int64_t t = 0; t < sizes_.steps; ++t) {
      for (size_t k = 0; k < layers_.size(); ++k)
        layers_[k].forward(input(k), below(k), t, d_.temperature, keep, packed.layers[k], many);
      const Tensor& states = states_.back();
      packed.out->run(states, t, d_.outs.select(0, t), false);
      every_row([&](int64_t b) {
        source(b).forward(row(states, t, b), alpha(d_.alphas, t, b), row(d_.outs, t, b));
      });
      if (d_.drop_out.defined())
        map(data<T>(d_.feeds, t + 1), data<T>(d_.outs, t), data<T>(d_.drop_out, t),
            sizes_.batch * sizes_.size, [](Vec<T> a, Vec<T> b) { return a * b; });
    }
  }

  void backward(DecoderGradients& grads) {
    const int64_t depth = layers_.size();
    const auto out = step_product<T>(d_.weight_out_t.t(), sizes_.batch, sizes_.steps);
    Tensor& d_feed = layers_[0].dx = at::zeros({sizes_.batch, sizes_.size}, d_.feeds.options());
    for (int64_t t = sizes_.steps - 1; t >= 0; --t) {
      every_row(
          [&](int64_t b) { output_backward(grads, t, b, data<T>(d_feed) + b * sizes_.size); });
      out.run(grads.d_pre, t, grads.dh.back(), true);
      for (int64_t k = depth - 1; k >= 0; --k)
        layers_[k].backward(below(k), k + 1 < depth ? &layers_[k + 1] : nullptr, t, grads, k,
                            d_.temperature);
    }
    for (const auto& layer : layers_) {
      grads.params.push_back(layer.rows.d_params());
      grads.bias.push_back(layer.rows.d_bias());
    }
  }

 private:
  // Calls f(b) for every row b of the batch, in parallel.
  template <class F>
  void every_row(const F& f) const {
    const int64_t shares = num_chunks(sizes_.batch, 2 * d_.keys.size(1) * sizes_.size);
    parallel_chunks(shares, sizes_.batch, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) f(b);
    });
  }

  const Tensor& input(size_t k) const {
    if (k == 0) return d_.feeds;
    const auto& lower = d_.layers[k - 1];
    return lower.up.defined() ? lower.up : states_[k - 1];
  }

  const LayerLoop<T>* below(size_t k) const { return k == 0 ? nullptr : &layers_[k - 1]; }

  T* row(const Tensor& steps, int64_t t, int64_t b) const {
    return data<T>(steps, t) + b * sizes_.size;
  }
  T* alpha(const Tensor& steps, int64_t t, int64_t b) const {
    return data<T>(steps, t) + b * d_.keys.size(1);
  }

  Source<T> source(int64_t b) const {
    const int64_t r = d_.source.defined() ? d_.source.template const_data_ptr<int64_t>()[b] : b;
    const int64_t at = r * d_.keys.stride(0);
    const bool* mask = d_.mask.defined() ? d_.mask.template const_data_ptr<bool>() : nullptr;
    return {data<T>(d_.keys) + at, data<T>(d_.values) + at,
            mask ? mask + r * d_.keys.size(1) : nullptr, d_.keys.size(1), sizes_.size};
  }

  // Given the gradient of row b's output (after dropout), computes those of the scores and the top
  // h.
  void output_backward(DecoderGradients& grads, int64_t t, int64_t b, T* d_feed) {
    const int64_t n = sizes_.size;
    if (grads.out.defined())
      map(d_feed, d_feed, row(grads.out, t, b), n, [](Vec<T> a, Vec<T> g) { return a + g; });
    if (d_.drop_out.defined())
      map(d_feed, d_feed, row(d_.drop_out, t, b), n, [](Vec<T> a, Vec<T> m) { return a * m; });
    T* d_pre = row(grads.d_pre, t, b);
    map(d_pre, d_feed, row(d_.outs, t, b), n,
        [](Vec<T> g, Vec<T> y) { return g * (Vec<T>(T(1)) - y * y); });
    thread_local std::vector<T> d_alpha;
    d_alpha.assign(d_.keys.size(1), T(0));
    if (grads.alpha.defined())
      std::copy_n(alpha(grads.alpha, t, b), d_alpha.size(), d_alpha.data());
    source(b).backward(alpha(d_.alphas, t, b), d_pre, d_alpha.data(), alpha(grads.d_scores, t, b),
                       data<T>(grads.dh.back()) + b * n);
  }

  Decoder& d_;
  const Sizes sizes_;
  std::vector<LayerLoop<T>> layers_;
  std::vector<Tensor> states_;  // h of each layer after each step
};

// Rows [first, first + count) of a step. Gates and candidates, which no other step reads, are those
// of the first rows.
Decoder rows_of(const Decoder& decoder, int64_t first, int64_t count) {
  const auto narrow = [](Tensor& tensor, int64_t dim, int64_t from, int64_t rows) {
    if (tensor.defined()) tensor = tensor.narrow(dim, from, rows);
  };
  Decoder part = decoder;
  for (auto& layer : part.layers) {
    for (Tensor* states : {&layer.hs, &layer.cs, &layer.mixes}) narrow(*states, 1, first, count);
    for (Tensor* sums : {&layer.gates, &layer.candidate}) narrow(*sums, 1, 0, count);
  }
  for (Tensor* outputs : {&part.feeds, &part.outs, &part.alphas}) narrow(*outputs, 1, first, count);
  if (part.source.defined()) narrow(part.source, 0, first, count);
  else
    for (Tensor* sentences : {&part.keys, &part.values, &part.mask})
      narrow(*sentences, 0, first, count);
  return part;
}

}  // namespace

struct PackedWeights {
  Products<float> single;
  Products<double> twice;

  template <class T>
  Products<T>& of() {
    if constexpr (std::is_same_v<T, float>) return single;
    else return twice;
  }
};

void decode_forward(Decoder& decoder, bool keep) {
  AT_DISPATCH_FLOATING_TYPES(decoder.feeds.scalar_type(), "casrnn::decode_forward", [&] {
    Products<scalar_t> packed;
    const bool many = decoder.alphas.size(0) > 1;
    Loop<scalar_t>(decoder).forward(keep, packed, many);
  });
}

void decode_backward(Decoder& decoder, DecoderGradients& grads) {
  AT_DISPATCH_FLOATING_TYPES(decoder.feeds.scalar_type(), "casrnn::decode_backward",
                             [&] { Loop<scalar_t>(decoder).backward(grads); });
}

DecoderSteps::DecoderSteps(Decoder decoder)
    : decoder_(std::move(decoder)),
      packed_(std::make_shared<PackedWeights>()),
      size_(decoder_.feeds.size(2)) {}

void DecoderSteps::reorder(const Tensor& order) {
  order_ = order_.defined() ? order_.index_select(0, order) : order;
  if (decoder_.source.defined()) decoder_.source = decoder_.source.index_select(0, order);
  else decoder_.source = order;
}

// Copies the state after the last step, in the pending order, to the state before the next.
void DecoderSteps::advance(Tensor& states, int64_t batch) const {
  if (!states.defined()) return;
  Tensor now = states.select(0, 1);
  if (states.size(1) != batch) states = at::empty({2, batch, size_}, states.options());
  Tensor before = states.select(0, 0);
  if (order_.defined()) at::index_select_out(before, now, 0, order_);
  else before.copy_(now);
}

// The rows to compute at once: few, so that their gates stay in the caches between the products and
// the cell's kernel (beam search 4 to 7 % faster with int8, 1 to 2 % with bfloat16).
int64_t DecoderSteps::rows_at_once() const {
  constexpr int64_t kGates = 3 << 16, kLeast = 64;  // elements of a thread, rows
  int64_t widest = 1;
  for (const auto& layer : decoder_.layers) widest = std::max(widest, layer.bias.size(0));
  return std::max(kGates / widest, kLeast) * at::get_num_threads();
}

std::tuple<Tensor, Tensor> DecoderSteps::step(const Tensor& embedded, const Tensor& routed) {
  const int64_t batch = embedded.size(0), most = std::min(batch, rows_at_once());
  check("the embedding", embedded, {batch, decoder_.weight_in_t.size(0)});
  TORCH_CHECK(!order_.defined() || order_.size(0) == batch, "the step is for ", batch,
              " rows, not ", order_.size(0));
  for (auto& layer : decoder_.layers) {
    if (begun_) advance(layer.hs, batch), advance(layer.cs, batch);
    const auto options = layer.hs.options();
    if (layer.mixes.defined() && layer.mixes.size(1) != batch)
      layer.mixes = at::empty({1, batch, layer.mixes.size(2)}, options);
    if (layer.gates.defined() && layer.gates.size(1) >= most) continue;
    layer.gates = at::empty({1, most, layer.bias.size(0)}, options);
    if (!layer.cs.defined()) layer.candidate = at::empty({1, most, size_}, options);
  }
  if (begun_) advance(decoder_.feeds, batch);
  if (routed.defined()) decoder_.layers[0].mixes = routed.unsqueeze(0);
  decoder_.outs = decoder_.feeds.narrow(0, 1, 1);
  decoder_.alphas = at::empty({1, batch, decoder_.keys.size(1)}, decoder_.keys.options());
  AT_DISPATCH_FLOATING_TYPES(decoder_.feeds.scalar_type(), "casrnn::DecoderSteps", [&] {
    auto& packed = packed_->of<scalar_t>();
    if (!packed.in) packed.in.emplace(decoder_.weight_in_t, batch, true, true);
    for (int64_t first = 0; first < batch; first += most) {
      const int64_t count = std::min(most, batch - first);
      Decoder part = rows_of(decoder_, first, count);
      packed.in->run(embedded.narrow(0, first, count), part.layers[0].gates.select(0, 0), false);
      Loop<scalar_t>(part).forward(false, packed, true);
    }
  });
  order_ = Tensor();
  begun_ = true;
  return {decoder_.outs.select(0, 0).clone(), decoder_.alphas.select(0, 0)};
}

}  // namespace casrnn
