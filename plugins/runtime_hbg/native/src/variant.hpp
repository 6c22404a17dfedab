// The differences between the two variants; each library defines its own.
#pragma once

#include <cstdint>

namespace pto::build_graph {

struct Variant {
  const char* name;
  uint32_t capabilities;
  bool is_concurrent;       // whether schedulers may run while the graph is built
  bool explicit_publish;    // whether a task runs only after it was published
  const char* orchestrate;  // the symbol that the variant's entry_wrapper.hpp exports
};

extern const Variant variant;

}  // namespace pto::build_graph
