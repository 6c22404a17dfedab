// How a task uses a parameter: the type of PTO_TAG_*.
#pragma once

#include <cstdint>

#include "pto/abi/runtime.h"
#include "pto/abi/tensor.h"

namespace pto::engine {

enum class Tag : uint8_t {
  kInput = PTO_TAG_INPUT,
  kOutput = PTO_TAG_OUTPUT,
  kInout = PTO_TAG_INOUT,
  kOutputExisting = PTO_TAG_OUTPUT_EXISTING,
  kNoDep = PTO_TAG_NO_DEP,
  kScalar = PTO_TAG_SCALAR,
  kAny = PTO_ANY  // the parameter has no declared tag
};

inline constexpr const char* kTagNames[] = {"INPUT",           "OUTPUT", "INOUT",
                                            "OUTPUT_EXISTING", "NO_DEP", "SCALAR"};
static_assert(sizeof kTagNames / sizeof *kTagNames == PTO_TAG_SCALAR + 1, "a name for each tag");

// Whether the task waits for earlier writers because it reads what they wrote.
constexpr bool reads(Tag tag) {
  return tag == Tag::kInput || tag == Tag::kInout;
}
constexpr bool writes(Tag tag) {
  return tag == Tag::kOutput || tag == Tag::kInout || tag == Tag::kOutputExisting;
}

}  // namespace pto::engine
