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

// The rows of word t are those of the first counts[t] sentences, after the rows of the words before
// it.
struct Rows {
  explicit Rows(const std::vector<int64_t>& counts) : counts(counts), starts(1, 0) {
    for (size_t t = 0; t < counts.size(); ++t) {
      TORCH_CHECK(counts[t] > 0 && (t == 0 || counts[t] <= counts[t - 1]),
                  "no sentence, or more than before, at word ", t);
      starts.push_back(starts.back() + counts[t]);
    }
  }

  bool has(int64_t t, int64_t b) const { return t >= 0 && t < steps() && b < counts[t]; }
  int64_t at(int64_t t, int64_t b) const { return starts[t] + b; }
  int64_t steps() const { return counts.size(); }
  int64_t batch() const { return counts.at(0); }
  int64_t all() const { return starts.back(); }

  const std::vector<int64_t>& counts;
  std::vector<int64_t> starts;
};

struct Sizes {
  int64_t size, nodes, shares, gates, window;
};

struct Units {
  int64_t begin, end;

  // Calls body(lanes, j) for vectors of units j, j + 1, … until all units are done.
  template <class T, class Body>
  void each(const Body& body) const {
    constexpr int64_t width = Vec<T>::size();
    int64_t j = begin;
    for (; j + width <= end; j += width) body(Lanes<T, true>{width}, j);
    if (j < end) body(Lanes<T, false>{end - j}, j);
  }
};

// Calls body(t, b, units) for all words, in order. Threads divide the units, not the sentences: so
// all have as much to do, whatever the lengths, and every sum is one thread's. 16 units or fewer
// run on one thread.
template <class Body>
void each_word(const Rows& rows, int64_t size, const Body& body) {
  constexpr int64_t kBlock = 16;
  at::parallel_for(0, (size + kBlock - 1) / kBlock, 1 + 4096 / rows.all(),
                   [&](int64_t begin, int64_t end) {
                     const Units units{begin * kBlock, std::min(size, end * kBlock)};
                     for (int64_t t = 0; t < rows.steps(); ++t)
                       for (int64_t b = 0; b < rows.counts[t]; ++b) body(t, b, units);
                   });
}

// exp(s - 1) for a gate s. The factor 1/e cancels in the softmax, and the exponent is never
// positive.
template <class T>
Vec<T> share(Vec<T> s) {
  return exp_of_negative(s - Vec<T>(1));
}

template <class T>
Vec<T> slope(Vec<T> s) {  // of σ, where its value is s
  return s * (Vec<T>(1) - s);
}

template <class T, class L>
void add_to(const L& lanes, T* p, Vec<T> v) {
  lanes.store(p, lanes.load(p) + v);
}

void check_dense(const char* what, const Tensor& tensor, at::IntArrayRef shape) {
  check(what, tensor, shape);
  TORCH_CHECK(tensor.is_contiguous(), what, " of the sentence-state LSTM is not dense");
}

Sizes sizes_of(const Rows& rows, const Tensor& gates, const Tensor& c, const Tensor& nodes) {
  Sizes s;
  s.size = c.size(1), s.nodes = nodes.size(1);
  s.gates = gates.size(1) / s.size, s.shares = s.gates - 2;
  s.window = (s.shares - 2 - s.nodes) / 2;
  check_dense("gates", gates, {rows.all(), (2 * s.window + s.nodes + 4) * s.size});
  check_dense("c", c, {rows.all(), s.size});
  check_dense("nodes", nodes, {rows.batch(), s.nodes, s.size});
  return s;
}

// The cells that share k of word t of sentence b weights; null beyond the sentence, and for u.
template <class T>
const T* mixed(const Rows& rows, const Sizes& s, const T* c, const T* nodes, int64_t k, int64_t t,
               int64_t b) {
  const int64_t span = 2 * s.window + 1;
  if (k > span) return nodes + (b * s.nodes + k - span - 1) * s.size;
  const int64_t from = t + k - 1 - s.window;
  return k == 0 || !rows.has(from, b) ? nullptr : c + rows.at(from, b) * s.size;
}

// h: (N, H), around: (N, (2w+1)*H), total: (B, H), zeros.
template <class T>
void look(const Rows& rows, int64_t size, int64_t window, const T* h, T* around, T* total) {
  const int64_t span = 2 * window + 1;
  each_word(rows, size, [&](int64_t t, int64_t b, Units units) {
    const T* own = h + rows.at(t, b) * size;
    units.each<T>(
        [&](auto lanes, int64_t j) { add_to(lanes, total + b * size + j, lanes.load(own + j)); });
    T* to = around + rows.at(t, b) * span * size;
    for (int64_t from = t - window; from <= t + window; ++from, to += size) {
      const int64_t n = units.end - units.begin;
      if (rows.has(from, b))
        std::copy_n(h + rows.at(from, b) * size + units.begin, n, to + units.begin);
      else std::fill_n(to + units.begin, n, T(0));
    }
  });
}

template <class T>
void look_backward(const Rows& rows, int64_t size, int64_t window, const T* d_around,
                   const T* d_total, T* d_h) {
  const int64_t span = 2 * window + 1;
  each_word(rows, size, [&](int64_t t, int64_t b, Units units) {
    T* to = d_h + rows.at(t, b) * size;
    std::copy_n(d_total + b * size + units.begin, units.end - units.begin, to + units.begin);
    for (int64_t k = 0; k < span; ++k) {  // word t is the k-th word in the window of `reader`
      const int64_t reader = t + window - k;
      if (!rows.has(reader, b)) continue;
      const T* from = d_around + (rows.at(reader, b) * span + k) * size;
      units.each<T>([&](auto lanes, int64_t j) { add_to(lanes, to + j, lanes.load(from + j)); });
    }
  });
}

template <class T>
void mix(const Rows& rows, const Sizes& s, T* gates, const T* gx, const T* gg, const T* c,
         const T* nodes, T* new_h, T* new_c) {
  each_word(rows, s.size, [&](int64_t t, int64_t b, Units units) {
    const int64_t row = rows.at(t, b);
    T *h_out = new_h + row * s.size, *c_out = new_c + row * s.size,
      *a = gates + row * s.gates * s.size;
    const T *x = gx + row * s.gates * s.size, *shared = gg + b * s.gates * s.size;
    units.each<T>([&](auto lanes, int64_t j) {
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
        if (const T* from = mixed(rows, s, c, nodes, k, t, b))
          cell = fmadd(e, lanes.load(from + j), cell);
      }
      cell = cell / all;
      lanes.store(c_out + j, cell);
      lanes.store(h_out + j, o * tanh(cell));
    });
  });
}

template <class T>
void mix_backward(const Rows& rows, const Sizes& s, const T* gates, const T* c, const T* nodes,
                  const T* new_c, const T* grad_h, const T* grad_c, T* d_gates, T* d_gg, T* d_c,
                  T* d_nodes) {
  each_word(rows, s.size, [&](int64_t t, int64_t b, Units units) {
    const int64_t row = rows.at(t, b);
    const T* a = gates + row * s.gates * s.size;
    T *da = d_gates + row * s.gates * s.size, *d_shared = d_gg + b * s.gates * s.size;
    units.each<T>([&](auto lanes, int64_t j) {
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
        lanes.store(da + k * s.size + j, e);  // until it is read again below
        all = all + e;
      }
      const Vec<T> d_cell =
          lanes.load(grad_c + row * s.size + j) + dh * o * (one - squashed * squashed);
      const Vec<T> scaled = d_cell / all;
      give(s.shares, dh * squashed * slope(o));
      for (int64_t k = 0; k < s.shares; ++k) {
        const Vec<T> d_value = scaled * lanes.load(da + k * s.size + j);
        Vec<T> value(T(0));
        if (k == 0) {
          value = u;
          give(s.shares + 1, d_value * (one - u * u));
        } else if (const T* from = mixed(rows, s, c, nodes, k, t, b)) {
          value = lanes.load(from + j);
          T* to = k > 2 * s.window + 1 ? d_nodes + (from - nodes) : d_c + (from - c);
          add_to(lanes, to + j, d_value);
        }
        give(k, d_value * (value - cell) * slope(gate(k)));
      }
    });
  });
}

template <class T>
void gather(const Rows& rows, int64_t size, int64_t nodes, T* gates, const T* gg, const T* c,
            T* cells, T* shares) {
  each_word(rows, size, [&](int64_t t, int64_t b, Units units) {
    for (int64_t k = 0; k < nodes; ++k) {
      const int64_t row = rows.at(t, b), node = (b * nodes + k) * size;
      T* a = gates + (row * nodes + k) * size;
      units.each<T>([&](auto lanes, int64_t j) {
        const Vec<T> f = sigmoid(lanes.load(a + j) + lanes.load(gg + node + j));
        lanes.store(a + j, f);
        const Vec<T> e = share(f);
        lanes.store(cells + node + j,
                    fmadd(e, lanes.load(c + row * size + j), lanes.load(cells + node + j)));
        add_to(lanes, shares + node + j, e);
      });
    }
  });
}

template <class T>
void gather_backward(const Rows& rows, int64_t size, int64_t nodes, const T* gates, const T* c,
                     const T* grad_cells, const T* grad_shares, T* d_gates, T* d_gg, T* d_c) {
  each_word(rows, size, [&](int64_t t, int64_t b, Units units) {
    for (int64_t k = 0; k < nodes; ++k) {
      const int64_t row = rows.at(t, b), node = (b * nodes + k) * size;
      const int64_t at = (row * nodes + k) * size;
      units.each<T>([&](auto lanes, int64_t j) {
        const Vec<T> f = lanes.load(gates + at + j), e = share(f);
        const Vec<T> d_cells = lanes.load(grad_cells + node + j);
        add_to(lanes, d_c + row * size + j, e * d_cells);
        const Vec<T> d_e =
            fmadd(d_cells, lanes.load(c + row * size + j), lanes.load(grad_shares + node + j));
        const Vec<T> d_sum = d_e * e * slope(f);
        lanes.store(d_gates + at + j, d_sum);
        add_to(lanes, d_gg + node + j, d_sum);
      });
    }
  });
}

}  // namespace

std::tuple<Tensor, Tensor> window_concat(const Tensor& h, int64_t window,
                                         const std::vector<int64_t>& counts) {
  const Rows rows(counts);
  const int64_t size = h.size(1);
  check_dense("h", h, {rows.all(), size});
  const Tensor around = at::empty({rows.all(), (2 * window + 1) * size}, h.options());
  const Tensor total = at::zeros({rows.batch(), size}, h.options());
  AT_DISPATCH_FLOATING_TYPES(h.scalar_type(), "casrnn::window_concat", [&] {
    look<scalar_t>(rows, size, window, data<scalar_t>(h), data<scalar_t>(around),
                   data<scalar_t>(total));
  });
  return {around, total};
}

Tensor window_concat_backward(const Tensor& d_around, const Tensor& d_total, int64_t window,
                              const std::vector<int64_t>& counts) {
  const Rows rows(counts);
  const int64_t size = d_total.size(1);
  check_dense("a gradient", d_around, {rows.all(), (2 * window + 1) * size});
  check_dense("a gradient", d_total, {rows.batch(), size});
  const Tensor d_h = at::empty({rows.all(), size}, d_total.options());
  AT_DISPATCH_FLOATING_TYPES(d_h.scalar_type(), "casrnn::window_concat_backward", [&] {
    look_backward<scalar_t>(rows, size, window, data<scalar_t>(d_around), data<scalar_t>(d_total),
                            data<scalar_t>(d_h));
  });
  return d_h;
}

std::tuple<Tensor, Tensor> mix_words(const Tensor& gates, const Tensor& gx, const Tensor& gg,
                                     const Tensor& c, const Tensor& nodes,
                                     const std::vector<int64_t>& counts) {
  const Rows rows(counts);
  const Sizes s = sizes_of(rows, gates, c, nodes);
  check_dense("gx", gx, gates.sizes());
  check_dense("gg", gg, {rows.batch(), s.gates * s.size});
  const Tensor new_h = at::empty_like(c), new_c = at::empty_like(c);
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "casrnn::mix_words", [&] {
    mix<scalar_t>(rows, s, data<scalar_t>(gates), data<scalar_t>(gx), data<scalar_t>(gg),
                  data<scalar_t>(c), data<scalar_t>(nodes), data<scalar_t>(new_h),
                  data<scalar_t>(new_c));
  });
  return {new_h, new_c};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> mix_words_backward(
    const Tensor& gates, const Tensor& c, const Tensor& nodes, const Tensor& new_c,
    const Tensor& grad_h, const Tensor& grad_c, const std::vector<int64_t>& counts) {
  const Rows rows(counts);
  const Sizes s = sizes_of(rows, gates, c, nodes);
  for (const Tensor& tensor : {new_c, grad_h, grad_c})
    check_dense("c or a gradient", tensor, c.sizes());
  const Tensor d_gates = at::empty_like(gates),
               d_gg = at::zeros({rows.batch(), s.gates * s.size}, c.options());
  const Tensor d_c = at::zeros_like(c), d_nodes = at::zeros_like(nodes);
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "casrnn::mix_words_backward", [&] {
    mix_backward<scalar_t>(rows, s, data<scalar_t>(gates), data<scalar_t>(c), data<scalar_t>(nodes),
                           data<scalar_t>(new_c), data<scalar_t>(grad_h), data<scalar_t>(grad_c),
                           data<scalar_t>(d_gates), data<scalar_t>(d_gg), data<scalar_t>(d_c),
                           data<scalar_t>(d_nodes));
  });
  return {d_gates, d_gg, d_c, d_nodes};
}

std::tuple<Tensor, Tensor> gather_words(const Tensor& gates, const Tensor& gg, const Tensor& c,
                                        const std::vector<int64_t>& counts) {
  const Rows rows(counts);
  const int64_t size = c.size(1), nodes = gates.size(1) / size;
  check_dense("gates", gates, {rows.all(), nodes * size});
  check_dense("gg", gg, {rows.batch(), nodes * size});
  check_dense("c", c, {rows.all(), size});
  const Tensor cells = at::zeros({rows.batch(), nodes, size}, c.options()),
               shares = at::zeros_like(cells);
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "casrnn::gather_words", [&] {
    gather<scalar_t>(rows, size, nodes, data<scalar_t>(gates), data<scalar_t>(gg),
                     data<scalar_t>(c), data<scalar_t>(cells), data<scalar_t>(shares));
  });
  return {cells, shares};
}

std::tuple<Tensor, Tensor, Tensor> gather_words_backward(const Tensor& gates, const Tensor& c,
                                                         const Tensor& grad_cells,
                                                         const Tensor& grad_shares,
                                                         const std::vector<int64_t>& counts) {
  const Rows rows(counts);
  const int64_t size = c.size(1), nodes = gates.size(1) / size;
  check_dense("gates", gates, {rows.all(), nodes * size});
  check_dense("c", c, {rows.all(), size});
  for (const Tensor& tensor : {grad_cells, grad_shares})
    check_dense("a gradient", tensor, {rows.batch(), nodes, size});
  const Tensor d_gates = at::empty_like(gates),
               d_gg = at::zeros({rows.batch(), nodes * size}, c.options());
  const Tensor d_c = at::zeros_like(c);
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "casrnn::gather_words_backward", [&] {
    gather_backward<scalar_t>(rows, size, nodes, data<scalar_t>(gates), data<scalar_t>(c),
                              data<scalar_t>(grad_cells), data<scalar_t>(grad_shares),
                              data<scalar_t>(d_gates), data<scalar_t>(d_gg), data<scalar_t>(d_c));
  });
  return {d_gates, d_gg, d_c};
}

}  // namespace casrnn
