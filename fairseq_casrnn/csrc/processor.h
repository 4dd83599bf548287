// Which products of panels.h this processor is fast at, and which the user wants.
#pragma once

#include <ATen/core/Tensor.h>

namespace casrnn {

enum class Precision { kFloat, kBFloat16, kInt8 };

// Whether torch has the kernels, this processor runs them, and `matrix` is float32 on the CPU.
bool has_panels(const at::Tensor& matrix);

// The number of rows from which packing pays for a single product: `usual`, or more if torch's own
// product is in bfloat16.
int64_t rows_worth_panels(int64_t usual);

// Whether products of `rows` rows with `factor` are narrow: torch's setting allows it, the
// processor can, and there are enough rows for the conversion to pay.
bool is_narrow(const at::Tensor& factor, int64_t rows);

// Whether this processor multiplies integers of 8 bits.
bool can_quantise();

// Whether inference shall quantise, from now on, in all threads.
void set_int8(bool on);

// Whether products of inference with `factor` are quantised, however many rows they have: it is
// asked for, and `factor` is a float32 matrix large enough for it to pay.
bool is_quantised(const at::Tensor& factor);

// The depth of products is padded to a multiple of this.
int64_t depth_multiple(Precision precision);

}  // namespace casrnn
