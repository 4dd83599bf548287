// The elementwise part of one time step, for all rows of a batch: one pass over the gates.
#pragma once

#include <cstdint>
#include <string>

namespace casrnn {

// Where one time step finds things. B rows, H hidden units; all of shape (B, H) and dense unless said.
template <class T>
struct Step {
  int64_t batch, size;
  int64_t cells;  // S of a mixture, otherwise 1
  T* gates;       // (B, blocks * S * H): W x + b, then activated, then gradients of their sums
  T* candidate;   // only with Kernel::candidate: that block of U h, then its gradient
  const T* h_prev;
  const T* c_prev;
  const T* side;    // the lower layer's c, or mixture weights (B, S)
  const T* params;  // (Kernel::params, H)
  T* h;
  T* c;
  // Forward only.
  const T* products;  // (B, products * S * H): U h, added to the first blocks of the gates
  const T* bias;      // (blocks * S * H), added, too; may be null
  bool keep;          // whether gates and candidate will be looked at again
  // Backward only. dh and dc come in without what reaches h and c from outside, which is grad_h and
  // grad_c (either may be null), and leave as the gradients of h_prev (not through U) and of c_prev.
  T* dh;
  T* dc;
  const T* grad_h;
  const T* grad_c;
  T* d_side;    // may be null
  T* d_params;  // (Kernel::grads, H), added to
  T* d_bias;    // (blocks * S * H), added to; may be null
};

template <class T>
struct Kernel {
  int blocks, products;  // blocks of gates and of U h, per cell of a mixture
  int params, grads;     // rows of elementwise parameters, and how many of them (the first) are learned
  bool cell;             // whether there is a c
  bool candidate;        // whether the last block of U h is kept apart
  bool lower, mixture;   // whether side is the lower layer's c, or mixture weights
  void (*forward)(const Step<T>&, int64_t first_row, int64_t last_row);
  void (*backward)(const Step<T>&, int64_t first_row, int64_t last_row);
};

// The kernel of that name. Throws c10::Error for a name that is not known.
template <class T>
const Kernel<T>& kernel(const std::string& name);

// Instruction set of the kernels: "AVX512", "AVX2" or "DEFAULT".
const char* instruction_set();

}  // namespace casrnn
