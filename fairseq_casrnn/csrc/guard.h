// What every call from Python begins with, and its optional tensors.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace casrnn {

using Maybe = std::optional<at::Tensor>;

// No autograd in here, and no autocast: sums over time keep their precision.
struct NoAutogradGuard {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// The tensor, undefined where there is none.
inline at::Tensor plain(const Maybe& tensor) { return tensor.value_or(at::Tensor()); }

inline at::Tensor dense(const Maybe& tensor) {
  return tensor.has_value() ? tensor->contiguous() : at::Tensor();
}

}  // namespace casrnn
