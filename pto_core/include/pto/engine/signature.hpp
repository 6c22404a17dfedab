// Compares the arguments that an orchestration passes with the signature of the kernel.
#pragma once

#include <cstdint>

#include "pto/abi/dtype.h"
#include "pto/abi/runtime.h"
#include "pto/abi/tensor.h"
#include "pto/engine/text.hpp"

namespace pto::engine {

// Whether the signature accepts this number of arguments. A submit adds `appended` numbers, which
// a signature may list or omit.
inline bool accepts(const pto_signature& signature, uint32_t count, uint32_t appended) {
  const auto fits = [&](uint32_t passed) {
    return passed >= signature.required &&
           (signature.takes_more != 0 || passed <= signature.num_arguments);
  };
  return fits(count) || fits(count + appended);
}

// Whether 64 bits can be a number of a data type. A narrow integer may be zero-extended.
inline bool is_number(uint64_t bits, uint8_t dtype) {
  const auto is_negative_from = [&](int64_t least) {
    const auto number = static_cast<int64_t>(bits);
    return least <= number && number < 0;
  };
  switch (dtype) {
    case PTO_DTYPE_BOOL:
      return bits <= 1;
    case PTO_DTYPE_UINT8:
      return bits <= 0xff;
    case PTO_DTYPE_FLOAT16:
    case PTO_DTYPE_BFLOAT16:
    case PTO_DTYPE_UINT16:
      return bits <= 0xffff;
    case PTO_DTYPE_FLOAT32:
    case PTO_DTYPE_UINT32:
      return bits <= 0xffffffff;
    case PTO_DTYPE_INT8:
      return bits <= 0xff || is_negative_from(INT8_MIN);
    case PTO_DTYPE_INT16:
      return bits <= 0xffff || is_negative_from(INT16_MIN);
    case PTO_DTYPE_INT32:
      return bits <= 0xffffffff || is_negative_from(INT32_MIN);
    default:
      return true;
  }
}

// Whether a task may use a tensor with `tag` where the signature declares `declared`: what the
// kernel reads must have content, and what it writes must be ordered as a write. NO_DEP is the
// explicit exception.
inline bool permits(uint32_t declared, uint32_t tag) {
  if (tag == PTO_TAG_NO_DEP || declared == PTO_TAG_NO_DEP || tag == declared) return true;
  const bool is_written = declared == PTO_TAG_OUTPUT || declared == PTO_TAG_OUTPUT_EXISTING;
  if (is_written) return tag != PTO_TAG_INPUT;
  return declared == PTO_TAG_INPUT && tag == PTO_TAG_INOUT;
}

// Describes a declared argument, such as "out, float32".
struct DeclaredText {
  char text[32];

  explicit DeclaredText(const pto_declared_argument& declared) {
    static const char* const tags[] = {"in", "out", "inout", "out_existing", "no_dep", "scalar"};
    static const char* const types[] = {
        "float32",  "float16",   "int32",      "int16",         "int8",       "uint8",
        "bfloat16", "int64",     "uint64",     "float64",       "bool",       "uint16",
        "uint32",   "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"};
    static_assert(PTO_DTYPE_COUNT == sizeof types / sizeof *types, "a name for each type");
    static_assert(PTO_TAG_SCALAR + 1 == sizeof tags / sizeof *tags, "a name for each tag");
    Text line(text, sizeof text);
    line.add(declared.tag <= PTO_TAG_SCALAR ? tags[declared.tag] : "any");
    if (declared.dtype < PTO_DTYPE_COUNT) line.add(", ", types[declared.dtype]);
  }
};

}  // namespace pto::engine
