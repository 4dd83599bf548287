// The guard with which every call from Python begins, and optional tensors.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace casrnn {

using Maybe = std::optional<at::Tensor>;

// Disables autograd and autocast: the recurrence keeps its precision.
struct NoAutogradGuard {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// The tensor, or an undefined one.
inline at::Tensor plain(const Maybe& tensor) { return tensor.value_or(at::Tensor()); }

inline at::Tensor dense(const Maybe& tensor) {
  return tensor.has_value() ? tensor->contiguous() : at::Tensor();
}

}  // namespace casrnn
