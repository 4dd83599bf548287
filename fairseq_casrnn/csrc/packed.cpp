#include "packed.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace casrnn {
namespace {

using at::Tensor;

// Operators that torch registers for its own compiler; called by name, for they are in no header.
std::optional<c10::OperatorHandle> find(const char* name) {
  return c10::Dispatcher::singleton().findSchema({name, ""});
}

const std::optional<c10::OperatorHandle>& reorder() {
  static const auto found = find("mkldnn::_reorder_linear_weight");
  return found;
}

const std::optional<c10::OperatorHandle>& linear() {
  static const auto found = find("mkldnn::_linear_pointwise");
  return found;
}

Tensor call(const c10::OperatorHandle& op, torch::jit::Stack stack) {
  op.callBoxed(stack);
  return stack.at(0).toTensor();
}

// Other versions of torch may give these operators other arguments.
bool have_expected_arguments() {
  return reorder() && linear() && reorder()->schema().arguments().size() == 2 &&
         linear()->schema().arguments().size() == 6;
}

}  // namespace

bool PackedProduct::is_available(const Tensor& matrix) {
  static const bool known = at::hasMKLDNN() && have_expected_arguments();
  return known && at::globalContext().userEnabledMkldnn() && matrix.scalar_type() == at::kFloat;
}

PackedProduct::PackedProduct(const Tensor& matrix, int64_t rows, const Tensor& bias)
    : matrix_(call(*reorder(), {matrix.t().contiguous(), rows})), bias_(bias) {}

void PackedProduct::run(const Tensor& x, const Tensor& y, bool add) const {
  static const c10::List<std::optional<at::Scalar>> none;
  const c10::IValue bias = bias_.defined() ? c10::IValue(bias_) : c10::IValue();
  const Tensor product =
      call(*linear(), {x, matrix_, bias, std::string("none"), none, c10::IValue(std::string())});
  if (add) y.add_(product);
  else y.copy_(product);
}

}  // namespace casrnn
