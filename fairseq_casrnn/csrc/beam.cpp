#include "vec.h"  // first: it chooses the instruction set

#include "beam.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
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

constexpr int64_t kBlock = 4 * Vec<float>::size();

// Whether one of kBlock values may be greater than `worst`; also true if one is NaN.
inline bool may_exceed(const float* x, Vec<float> score, float worst) {
  constexpr int64_t width = Vec<float>::size();
  Vec<float> most = Vec<float>::loadu(x) + score;
  for (int64_t i = width; i < kBlock; i += width)
    most = at::vec::maximum(most, Vec<float>::loadu(x + i) + score);
  float lanes[width];
  most.store(lanes);
  bool below = true;
  for (const float lane : lanes) below &= lane <= worst;
  return !below;
}

void choose(const float* lprobs, const float* scores, int64_t rows, int64_t size,
            std::vector<Candidate>& heap) {
  // Less than any number: the first values replace them.
  std::fill(heap.begin(), heap.end(), Candidate{-std::numeric_limits<float>::infinity(), rows * size});
  auto offer = [&](float value, int64_t index) {
    if (!(value == value)) value = -std::numeric_limits<float>::infinity();
    const Candidate candidate{value, index};
    if (!(candidate < heap.front())) return;
    std::pop_heap(heap.begin(), heap.end());
    heap.back() = candidate;
    std::push_heap(heap.begin(), heap.end());
  };
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = lprobs + r * size;
    const float score = scores[r];
    int64_t i = 0;
    for (; i + kBlock <= size; i += kBlock) {
      const bool full = heap.front().index < rows * size;
      if (full && !may_exceed(x + i, Vec<float>(score), heap.front().value)) continue;
      for (int64_t j = i; j < i + kBlock; ++j) offer(x[j] + score, r * size + j);
    }
    for (; i < size; ++i) offer(x[i] + score, r * size + i);
  }
  std::sort_heap(heap.begin(), heap.end());
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> best_sums(const at::Tensor& lprobs, const at::Tensor& scores,
                                             int64_t count) {
  const int64_t batch = lprobs.size(0), rows = lprobs.size(1), size = lprobs.size(2);
  check("scores", scores, {batch, rows});
  TORCH_CHECK(lprobs.is_contiguous() && scores.is_contiguous(), "lprobs or scores are not dense");
  TORCH_CHECK(0 < count && count <= rows * size, "there are not ", count, " continuations");
  const at::Tensor values = at::empty({batch, count}, lprobs.options());
  const at::Tensor indices = at::empty({batch, count}, lprobs.options().dtype(at::kLong));
  const float *x = lprobs.const_data_ptr<float>(), *s = scores.const_data_ptr<float>();
  float* value = values.mutable_data_ptr<float>();
  int64_t* index = indices.mutable_data_ptr<int64_t>();
  at::parallel_for(0, batch, 1, [&](int64_t begin, int64_t end) {
    std::vector<Candidate> heap(count);
    for (int64_t b = begin; b < end; ++b) {
      choose(x + b * rows * size, s + b * rows, rows, size, heap);
      for (int64_t k = 0; k < count; ++k) {
        value[b * count + k] = heap[k].value;
        index[b * count + k] = heap[k].index;
      }
    }
  });
  return {values, indices};
}

}  // namespace casrnn
