#include "build_info.h"
#include "cells.h"

namespace casrnn {

template <>
const Kernel<float>& kernel(const std::string& name) {
  return find_kernel<float>(name);
}

const char* instruction_set() {
#if defined(CPU_CAPABILITY_AVX512)
  return "AVX512";
#elif defined(CPU_CAPABILITY_AVX2)
  return "AVX2";
#else
  return "DEFAULT";
#endif
}

}  // namespace casrnn
