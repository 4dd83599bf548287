#include "vec.h"  // first: it chooses the instruction set

#include "beam.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "tensors.h"

namespace casrnn {
namespace {

struct Candidate {
  float value;
  int64_t index;
  bool operator<(const Candidate& other) const {  // for a heap whose top is the worst
    return value > other.value || (value == other.value && index < other.index);
  }
};

constexpr int64_t kWidth = Vec<float>::size(), kBlock = 4 * kWidth;

// What log softmax subtracts from each element of a row: first the largest, then the logarithm of
// the sum, for their own sum would be rounded to the precision of the larger one. The second is NaN
// if there is NaN or +inf.
struct Normaliser {
  float top, rest;
};

Normaliser normaliser(const float* x, int64_t size) {
  const float top = largest(x, size);
  Vec<float> powers(0.0f);
  int64_t i = 0;
  for (; i + kWidth <= size; i += kWidth)
    powers = powers + exp_of_negative(Vec<float>::loadu(x + i) - Vec<float>(top));
  double total = sum(powers);
  for (; i < size; ++i) total += std::exp(x[i] - top);
  return {top, float(std::log(total))};
}

// How a row's elements become sums of log-probabilities. Increasing, also as it is rounded.
struct Sum {
  Normaliser normaliser;
  float score;

  template <class T>
  T operator()(T x) const {
    return x - T(normaliser.top) - T(normaliser.rest) + T(score);
  }
};

// The lanes, as bits, whose sums are greater than `worst`, or NaN.
inline int lanes_above(Vec<float> x, const Sum& sum, float worst) {
  return (sum(x) <= Vec<float>(worst)).zero_mask();
}

// Whether the sum of one of kBlock elements may be greater than `worst`.
inline bool may_exceed(const float* x, const Sum& sum, float worst) {
  Vec<float> most = Vec<float>::loadu(x);
  for (int64_t i = kWidth; i < kBlock; i += kWidth) most = larger(most, Vec<float>::loadu(x + i));
  return lanes_above(most, sum, worst) != 0;
}

// The best `count` of the candidates that are offered; of equal ones the first, and NaN as -inf.
class Best {
 public:
  explicit Best(int64_t count) : heap_(count) { clear(); }

  // Less than any candidate: the first ones replace these.
  void clear() { std::fill(heap_.begin(), heap_.end(), Candidate{-kInfinity, kNone}); }

  // The continuations of hypothesis r.
  void offer_row(const float* x, int64_t size, int64_t r, const Sum& sum) {
    int64_t i = 0;
    for (; i < size && !is_full(); ++i) offer({sum(x[i]), r * size + i});
    for (; i + kBlock <= size; i += kBlock) {
      if (!may_exceed(x + i, sum, heap_.front().value)) continue;
      for (int64_t j = i; j < i + kBlock; j += kWidth) {
        const int above = lanes_above(Vec<float>::loadu(x + j), sum, heap_.front().value);
        for (int lane = 0; above >> lane; ++lane)
          if (above >> lane & 1) offer({sum(x[j + lane]), r * size + j + lane});
      }
    }
    for (; i < size; ++i) offer({sum(x[i]), r * size + i});
  }

  void merge(const Best& other) {
    for (const Candidate& candidate : other.heap_)
      if (candidate.index != kNone) offer(candidate);
  }

  // The best first. Nothing can be offered afterwards.
  void write(float* values, int64_t* indices) {
    std::sort_heap(heap_.begin(), heap_.end());
    for (const Candidate& candidate : heap_)
      *values++ = candidate.value, *indices++ = candidate.index;
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  bool is_full() const { return heap_.front().index != kNone; }

  void offer(Candidate candidate) {
    if (!(candidate.value == candidate.value)) candidate.value = -kInfinity;
    if (!(candidate < heap_.front())) return;
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.back() = candidate;
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::vector<Candidate> heap_;
};

// Where the best candidates of `batch` sentences are written.
struct Found {
  at::Tensor values, indices;  // (B, count)
  int64_t count;

  Found(int64_t batch, int64_t count, const at::TensorOptions& options)
      : values(at::empty({batch, count}, options)),
        indices(at::empty({batch, count}, options.dtype(at::kLong))),
        count(count) {}

  void write(int64_t b, Best& best) const {
    best.write(data<float>(values) + b * count, data<int64_t>(indices) + b * count);
  }
};

}  // namespace

std::tuple<at::Tensor, at::Tensor> best_next(const Factor& vocabulary, const at::Tensor& x,
                                             const at::Tensor& bias, const at::Tensor& scores,
                                             int64_t count, const std::vector<Penalty>& penalties) {
  const int64_t batch = scores.size(0), rows = scores.size(1), size = vocabulary.columns();
  check("x", x, {batch * rows, x.size(1)});
  check("bias", bias, {size});
  TORCH_CHECK(x.scalar_type() == at::kFloat && scores.scalar_type() == at::kFloat, "not of floats");
  TORCH_CHECK(scores.is_contiguous(), "scores are not dense");
  TORCH_CHECK(0 < count && count <= rows * size, "there are not ", count, " continuations");
  for (const Penalty& p : penalties)
    TORCH_CHECK(0 <= p.word && p.word < size, "word ", p.word, " in a vocabulary of ", size);
  std::vector<Best> all(batch, Best(count));
  std::mutex merging;  // threads may share a sentence
  const float* s = scores.const_data_ptr<float>();
  vocabulary.multiply(x, bias, [&](int64_t begin, int64_t end, float* logits) {
    Best best(count);
    for (int64_t row = begin; row < end; ++row, logits += size) {
      const Sum sum{normaliser(logits, size), s[row]};
      for (const Penalty& p : penalties) logits[p.word] -= p.amount;
      best.offer_row(logits, size, row % rows, sum);
      if (row + 1 < end && (row + 1) % rows != 0) continue;
      const std::lock_guard<std::mutex> lock(merging);
      all[row / rows].merge(best);
      best.clear();
    }
  });
  const Found found(batch, count, scores.options());
  for (int64_t b = 0; b < batch; ++b) found.write(b, all[b]);
  return {found.values, found.indices};
}

}  // namespace casrnn
