// Strings that fairseq_casrnn/recurrence/cpp.py reads from the compiled file before it loads it:
// the digest of the sources, and the instruction sets it was compiled for, by their names in
// Linux's /proc/cpuinfo.
#pragma once

namespace casrnn {

#define CASRNN_STRING(text) #text
#define CASRNN_TEXT_OF(macro) CASRNN_STRING(macro)

__attribute__((used)) const char source_digest[] =
    "fairseq_casrnn sources: " CASRNN_TEXT_OF(CASRNN_SOURCES) ";";

// On a processor without them, loading the file would kill the process.
__attribute__((used)) const char required_instructions[] =
    "fairseq_casrnn needs:"
#ifdef __AVX2__
    " avx2"
#endif
#ifdef __FMA__
    " fma"
#endif
#ifdef __BMI2__
    " bmi2"
#endif
#ifdef __AVX512F__
    " avx512f"
#endif
#ifdef __AVX512BW__
    " avx512bw"
#endif
#ifdef __AVX512CD__
    " avx512cd"
#endif
#ifdef __AVX512DQ__
    " avx512dq"
#endif
#ifdef __AVX512VL__
    " avx512vl"
#endif
#ifdef __AVX512IFMA__
    " avx512ifma"
#endif
#ifdef __AVX512VBMI__
    " avx512vbmi"
#endif
#ifdef __AVX512VBMI2__
    " avx512_vbmi2"
#endif
#ifdef __AVX512VNNI__
    " avx512_vnni"
#endif
#ifdef __AVX512BITALG__
    " avx512_bitalg"
#endif
#ifdef __AVX512VPOPCNTDQ__
    " avx512_vpopcntdq"
#endif
#ifdef __AVX512BF16__
    " avx512_bf16"
#endif
#ifdef __AVX512FP16__
    " avx512_fp16"
#endif
#ifdef __AVXVNNI__
    " avx_vnni"
#endif
#ifdef __GFNI__
    " gfni"
#endif
#ifdef __VAES__
    " vaes"
#endif
    ";";

}  // namespace casrnn
