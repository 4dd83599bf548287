#include "cells.h"

namespace casrnn {

template <>
const Kernel<double>& kernel(const std::string& name) {
  return find_kernel<double>(name);
}

}  // namespace casrnn
