// The rows of a step shared out among threads.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>

namespace casrnn {

// How many shares of `rows` rows of `columns` elements are worth a thread each.
inline int64_t shares_of(int64_t rows, int64_t columns) {
  constexpr int64_t kFewest = 1 << 13;  // elements; with fewer, waking a thread takes longer
  return std::clamp<int64_t>(rows * columns / kFewest, 1, std::min<int64_t>(at::get_num_threads(), rows));
}

// f(share, first_row, last_row) for every share, all at once.
template <class F>
void shared_out(int64_t shares, int64_t rows, const F& f) {
  if (shares == 1) return f(0, 0, rows);
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share)
      f(share, rows * share / shares, rows * (share + 1) / shares);
  });
}

}  // namespace casrnn
