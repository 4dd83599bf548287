// The elementwise part of one time step, for all rows of a batch: one pass over the gates.
#pragma once

#include <cstdint>
#include <string>

namespace casrnn {

// Arguments of one time step. B rows, H hidden units; all are (B, H) and contiguous unless noted.
template <class T>
struct Step {
  int64_t batch, size;
  int64_t cells;  // S of a mixture, otherwise 1
  T* gates;       // (B, blocks * S * H): pre-activations, then activated gates, then gradients
  T* candidate;   // only with Kernel::candidate: the separate block of U h, then its gradient
  const T* h_prev;
  const T* c_prev;
  const T* side;    // the lower layer's c, or mixture weights (B, S)
  const T* params;  // (Kernel::params, H)
  T* h;
  T* c;
  // Forward only.
  const T* products;  // (B, products * S * H): U h, added to the first blocks of the gates
  const T* bias;      // (blocks * S * H), added to the gates; may be null
  bool keep;          // whether gates and candidate are needed afterwards
  // Backward only. dh and dc come in without the incoming gradients grad_h and grad_c (which may be
  // null), and become the gradients of h_prev (without what comes through U) and of c_prev.
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
  int params, grads;     // rows of elementwise parameters, and how many (the first) have gradients
  bool cell;             // whether there is a c
  bool candidate;        // whether the last block of U h is not added to the gates
  bool lower, mixture;   // whether side is the lower layer's c, or mixture weights
  void (*forward)(const Step<T>&, int64_t first_row, int64_t last_row);
  void (*backward)(const Step<T>&, int64_t first_row, int64_t last_row);
};

// The kernel of that name. Throws c10::Error for an unknown name.
template <class T>
const Kernel<T>& kernel(const std::string& name);

// Instruction set of the kernels: "AVX512", "AVX2" or "DEFAULT".
const char* instruction_set();

}  // namespace casrnn
