// oneDNN's kernels for small products, as torch exposes them.
#pragma once

#include <ATen/native/CPUBlas.h>

#include <cstdint>

namespace casrnn {

#if defined(CPUBLAS_BRGEMM_F32F32F32) && defined(CPUBLAS_BRGEMM_BF16BF16F32) && \
    defined(CPUBLAS_BRGEMM_U8I8I32)
using at::native::cpublas::brgemm;
using at::native::cpublas::brgemm_release;
#else
template <class A, class B, class C>
inline void brgemm(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, const A*, const B*,
                   C*, bool) {
  TORCH_CHECK(false, "this torch has no brgemm");
}
inline void brgemm_release(bool) {}
#endif

}  // namespace casrnn
