// The loop over time of a mixture with hard routing: each input goes to one cell. Forward only.
#pragma once

#include <ATen/core/Tensor.h>

namespace casrnn {

// T steps, B rows, I inputs, H hidden units, S cells, G = 4 H gates of a cell. All contiguous
// unless noted.
struct Routed {
  at::Tensor x;            // (T, B, I)
  at::Tensor weight_ih_t;  // (I, S * G), any strides
  at::Tensor bias;         // (S * G)
  at::Tensor weight_hh_t;  // (H, S * G), any strides
  at::Tensor cells;        // (T, B) of int64, 0 to S - 1
  at::Tensor hs, cs;       // (T + 1, B, H), the initial state first
};

// Fills hs and cs, which hold the initial state. Only the cell that a row goes to is computed.
void routed_forward(Routed& layer);

}  // namespace casrnn
