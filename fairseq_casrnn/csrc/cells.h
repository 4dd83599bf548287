// All cells' kernels, by their names in fairseq_casrnn/cells.
#pragma once

#include <c10/util/Exception.h>

#include "../cells/cas_lstm/kernel.h"
#include "../cells/dg_lstm/kernel.h"
#include "../cells/highway_lstm/kernel.h"
#include "../cells/normalized_lstm/kernel.h"
#include "../cells/second_order_lstm/kernel.h"
#include "../cells/stacked_gru/kernel.h"
#include "../cells/stacked_lstm/kernel.h"
#include "rows.h"

namespace casrnn {

// The kernel of that one of Cells... whose kName is `name`. Throws c10::Error if there is none.
template <class T, class... Cells>
const Kernel<T>& kernel_among(const std::string& name) {
  static const std::pair<const char*, Kernel<T>> kernels[] = {
      {Cells::kName, make_kernel<T, Cells>()}...};
  for (const auto& [known, kernel] : kernels)
    if (name == known) return kernel;
  TORCH_CHECK(false, "no kernel is called ", name);
}

template <class T>
const Kernel<T>& find_kernel(const std::string& name) {
  return kernel_among<T, StackedLstm, StackedGru, NormalizedLstm, CasLstm<false>, CasLstm<true>,
                      HighwayLstm, DgLstm<false>, DgLstm<true>, SecondOrderLstm>(name);
}

}  // namespace casrnn
