#include "vec.h"  // first: it chooses the instruction set

#include "sentence_state.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "tensors.h"

namespace casrnn {
namespace {

using at::Tensor;

struct Sizes {
  int64_t steps, batch, size, nodes, shares, gates, window;
};

// Calls body(lanes, j) for vectors of units j, j + 1, … that together are all of them.
template <class T, class Body>
void for_units(int64_t size, const Body& body) {
  constexpr int64_t width = Vec<T>::size();
  int64_t j = 0;
  for (; j + width <= size; j += width) body(Lanes<T, true>{width}, j);
  if (j < size) body(Lanes<T, false>{size - j}, j);
}

// exp(s - 1) for a gate s. The factor 1/e is no matter to shares, and the exponent is never positive.
template <class T>
Vec<T> share(Vec<T> s) {
  return exp_of_negative(s - Vec<T>(1));
}

template <class T>
Vec<T> slope(Vec<T> s) {  // of σ, where it is s
  return s * (Vec<T>(1) - s);
}

template <class T, class L>
void add_to(const L& lanes, T* p, Vec<T> v) {
  lanes.store(p, lanes.load(p) + v);
}

Sizes sizes_of(const Tensor& gates, const Tensor& c, const Tensor& nodes, const Tensor& lengths) {
  Sizes s;
  s.steps = c.size(0), s.batch = c.size(1), s.size = c.size(2), s.nodes = nodes.size(1);
  s.gates = gates.size(2) / s.size, s.shares = s.gates - 2;
  s.window = (s.shares - 2 - s.nodes) / 2;
  check("gates", gates, {s.steps, s.batch, (2 * s.window + s.nodes + 4) * s.size});
  check("nodes", nodes, {s.batch, s.nodes, s.size});
  check("lengths", lengths, {s.batch});
  TORCH_CHECK(gates.is_contiguous() && c.is_contiguous() && nodes.is_contiguous() && lengths.is_contiguous(),
              "a tensor of the sentence-state LSTM is not dense");
  return s;
}

// The cells that share k of word t of sentence b is for: null beyond the sentence and for u.
template <class T>
const T* mixed(const Sizes& s, const T* c, const T* nodes, int64_t k, int64_t t, int64_t b, int64_t length) {
  const int64_t span = 2 * s.window + 1;
  if (k > span) return nodes + (b * s.nodes + k - span - 1) * s.size;
  const int64_t from = t + k - 1 - s.window;
  return k == 0 || from < 0 || from >= length ? nullptr : c + (from * s.batch + b) * s.size;
}

template <class T>
void mix(const Sizes& s, T* gates, const T* gx, const T* gg, const T* c, const T* nodes, const int64_t* lengths,
         T* new_h, T* new_c) {
  at::parallel_for(0, s.steps * s.batch, 1 + 4096 / (s.gates * s.size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t t = row / s.batch, b = row % s.batch;
      T *h_out = new_h + row * s.size, *c_out = new_c + row * s.size, *a = gates + row * s.gates * s.size;
      if (t >= lengths[b]) {
        std::fill_n(h_out, s.size, T(0)), std::fill_n(c_out, s.size, T(0));
        continue;
      }
      const T *x = gx + row * s.gates * s.size, *shared = gg + b * s.gates * s.size;
      for_units<T>(s.size, [&](auto lanes, int64_t j) {
        auto sum_of = [&](int64_t k) {
          const int64_t at = k * s.size + j;
          return lanes.load(a + at) + lanes.load(x + at) + lanes.load(shared + at);
        };
        auto keep = [&](int64_t k, Vec<T> v) {
          lanes.store(a + k * s.size + j, v);
          return v;
        };
        const Vec<T> o = keep(s.shares, sigmoid(sum_of(s.shares)));
        const Vec<T> u = keep(s.shares + 1, tanh(sum_of(s.shares + 1)));
        Vec<T> all = share(keep(0, sigmoid(sum_of(0)))), cell = all * u;
        for (int64_t k = 1; k < s.shares; ++k) {
          const Vec<T> e = share(keep(k, sigmoid(sum_of(k))));
          all = all + e;
          if (const T* from = mixed(s, c, nodes, k, t, b, lengths[b])) cell = fmadd(e, lanes.load(from + j), cell);
        }
        cell = cell / all;
        lanes.store(c_out + j, cell);
        lanes.store(h_out + j, o * tanh(cell));
      });
    }
  });
}

template <class T>
void mix_backward(const Sizes& s, const T* gates, const T* c, const T* nodes, const int64_t* lengths,
                  const T* new_c, const T* grad_h, const T* grad_c, T* d_gates, T* d_gg, T* d_c, T* d_nodes) {
  at::parallel_for(0, s.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t t = 0; t < s.steps; ++t) {
        const int64_t row = t * s.batch + b;
        const T* a = gates + row * s.gates * s.size;
        T *da = d_gates + row * s.gates * s.size, *d_shared = d_gg + b * s.gates * s.size;
        if (t >= lengths[b]) {
          std::fill_n(da, s.gates * s.size, T(0));
          continue;
        }
        for_units<T>(s.size, [&](auto lanes, int64_t j) {
          auto gate = [&](int64_t k) { return lanes.load(a + k * s.size + j); };
          auto give = [&](int64_t k, Vec<T> v) {
            lanes.store(da + k * s.size + j, v);
            add_to(lanes, d_shared + k * s.size + j, v);
          };
          const Vec<T> one(T(1)), o = gate(s.shares), u = gate(s.shares + 1);
          const Vec<T> cell = lanes.load(new_c + row * s.size + j), squashed = tanh(cell);
          const Vec<T> dh = lanes.load(grad_h + row * s.size + j);
          Vec<T> all(T(0));
          for (int64_t k = 0; k < s.shares; ++k) {
            const Vec<T> e = share(gate(k));
            lanes.store(da + k * s.size + j, e);  // until it is wanted again below
            all = all + e;
          }
          const Vec<T> d_cell = lanes.load(grad_c + row * s.size + j) + dh * o * (one - squashed * squashed);
          const Vec<T> scaled = d_cell / all;
          give(s.shares, dh * squashed * slope(o));
          for (int64_t k = 0; k < s.shares; ++k) {
            const Vec<T> d_value = scaled * lanes.load(da + k * s.size + j);
            Vec<T> value(T(0));
            if (k == 0) {
              value = u;
              give(s.shares + 1, d_value * (one - u * u));
            } else if (const T* from = mixed(s, c, nodes, k, t, b, lengths[b])) {
              value = lanes.load(from + j);
              T* to = k > 2 * s.window + 1 ? d_nodes + (from - nodes) : d_c + (from - c);
              add_to(lanes, to + j, d_value);
            }
            give(k, d_value * (value - cell) * slope(gate(k)));
          }
        });
      }
    }
  });
}

template <class T>
void gather(const Sizes& s, T* gates, const T* gg, const T* c, const int64_t* lengths, T* cells, T* shares) {
  at::parallel_for(0, s.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      for (int64_t t = 0; t < lengths[b]; ++t)
        for (int64_t k = 0; k < s.nodes; ++k) {
          const int64_t row = t * s.batch + b, node = (b * s.nodes + k) * s.size;
          T* a = gates + (row * s.nodes + k) * s.size;
          for_units<T>(s.size, [&](auto lanes, int64_t j) {
            const Vec<T> f = sigmoid(lanes.load(a + j) + lanes.load(gg + node + j));
            lanes.store(a + j, f);
            const Vec<T> e = share(f);
            lanes.store(cells + node + j, fmadd(e, lanes.load(c + row * s.size + j), lanes.load(cells + node + j)));
            add_to(lanes, shares + node + j, e);
          });
        }
  });
}

template <class T>
void gather_backward(const Sizes& s, const T* gates, const T* c, const int64_t* lengths, const T* grad_cells,
                     const T* grad_shares, T* d_gates, T* d_gg, T* d_c) {
  at::parallel_for(0, s.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      for (int64_t t = 0; t < lengths[b]; ++t)
        for (int64_t k = 0; k < s.nodes; ++k) {
          const int64_t row = t * s.batch + b, node = (b * s.nodes + k) * s.size;
          const int64_t at = (row * s.nodes + k) * s.size;
          for_units<T>(s.size, [&](auto lanes, int64_t j) {
            const Vec<T> f = lanes.load(gates + at + j), e = share(f);
            const Vec<T> d_cells = lanes.load(grad_cells + node + j);
            add_to(lanes, d_c + row * s.size + j, e * d_cells);
            const Vec<T> d_e = fmadd(d_cells, lanes.load(c + row * s.size + j), lanes.load(grad_shares + node + j));
            const Vec<T> d_sum = d_e * e * slope(f);
            lanes.store(d_gates + at + j, d_sum);
            add_to(lanes, d_gg + node + j, d_sum);
          });
        }
  });
}

Sizes gather_sizes(const Tensor& gates, const Tensor& c, const Tensor& lengths) {
  Sizes s{};
  s.steps = c.size(0), s.batch = c.size(1), s.size = c.size(2), s.nodes = gates.size(2) / s.size;
  check("gates", gates, {s.steps, s.batch, s.nodes * s.size});
  check("lengths", lengths, {s.batch});
  TORCH_CHECK(gates.is_contiguous() && c.is_contiguous() && lengths.is_contiguous(),
              "a tensor of the sentence-state LSTM is not dense");
  return s;
}

}  // namespace

std::tuple<Tensor, Tensor> mix_words(const Tensor& gates, const Tensor& gx, const Tensor& gg, const Tensor& c,
                                     const Tensor& nodes, const Tensor& lengths) {
  const Sizes s = sizes_of(gates, c, nodes, lengths);
  check("gx", gx, gates.sizes());
  check("gg", gg, {s.batch, s.gates * s.size});
  TORCH_CHECK(gx.is_contiguous() && gg.is_contiguous(), "a product of the sentence-state LSTM is not dense");
  const Tensor new_h = at::empty_like(c), new_c = at::empty_like(c);
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "casrnn::mix_words", [&] {
    mix<scalar_t>(s, data<scalar_t>(gates), data<scalar_t>(gx), data<scalar_t>(gg), data<scalar_t>(c),
                  data<scalar_t>(nodes), data<int64_t>(lengths), data<scalar_t>(new_h), data<scalar_t>(new_c));
  });
  return {new_h, new_c};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> mix_words_backward(const Tensor& gates, const Tensor& c,
                                                              const Tensor& nodes, const Tensor& lengths,
                                                              const Tensor& new_c, const Tensor& grad_h,
                                                              const Tensor& grad_c) {
  const Sizes s = sizes_of(gates, c, nodes, lengths);
  for (const Tensor& tensor : {new_c, grad_h, grad_c}) {
    check("a gradient", tensor, c.sizes());
    TORCH_CHECK(tensor.is_contiguous(), "a gradient of the sentence-state LSTM is not dense");
  }
  const Tensor d_gates = at::empty_like(gates), d_gg = at::zeros({s.batch, s.gates * s.size}, c.options());
  const Tensor d_c = at::zeros_like(c), d_nodes = at::zeros_like(nodes);
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "casrnn::mix_words_backward", [&] {
    mix_backward<scalar_t>(s, data<scalar_t>(gates), data<scalar_t>(c), data<scalar_t>(nodes),
                           data<int64_t>(lengths), data<scalar_t>(new_c), data<scalar_t>(grad_h),
                           data<scalar_t>(grad_c), data<scalar_t>(d_gates), data<scalar_t>(d_gg),
                           data<scalar_t>(d_c), data<scalar_t>(d_nodes));
  });
  return {d_gates, d_gg, d_c, d_nodes};
}

std::tuple<Tensor, Tensor> gather_words(const Tensor& gates, const Tensor& gg, const Tensor& c,
                                        const Tensor& lengths) {
  const Sizes s = gather_sizes(gates, c, lengths);
  check("gg", gg, {s.batch, s.nodes * s.size});
  TORCH_CHECK(gg.is_contiguous(), "a product of the sentence-state LSTM is not dense");
  const Tensor cells = at::zeros({s.batch, s.nodes, s.size}, c.options()), shares = at::zeros_like(cells);
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "casrnn::gather_words", [&] {
    gather<scalar_t>(s, data<scalar_t>(gates), data<scalar_t>(gg), data<scalar_t>(c), data<int64_t>(lengths),
                     data<scalar_t>(cells), data<scalar_t>(shares));
  });
  return {cells, shares};
}

std::tuple<Tensor, Tensor, Tensor> gather_words_backward(const Tensor& gates, const Tensor& c,
                                                         const Tensor& lengths, const Tensor& grad_cells,
                                                         const Tensor& grad_shares) {
  const Sizes s = gather_sizes(gates, c, lengths);
  for (const Tensor& tensor : {grad_cells, grad_shares}) {
    check("a gradient", tensor, {s.batch, s.nodes, s.size});
    TORCH_CHECK(tensor.is_contiguous(), "a gradient of the sentence-state LSTM is not dense");
  }
  const Tensor d_gates = at::zeros_like(gates), d_gg = at::zeros({s.batch, s.nodes * s.size}, c.options());
  const Tensor d_c = at::zeros_like(c);
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "casrnn::gather_words_backward", [&] {
    gather_backward<scalar_t>(s, data<scalar_t>(gates), data<scalar_t>(c), data<int64_t>(lengths),
                              data<scalar_t>(grad_cells), data<scalar_t>(grad_shares), data<scalar_t>(d_gates),
                              data<scalar_t>(d_gg), data<scalar_t>(d_c));
  });
  return {d_gates, d_gg, d_c};
}

}  // namespace casrnn
