// Which child a single task without a pin goes to.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace pto::hierarchy {

struct Candidate {
  int32_t child;
  uint64_t in_flight;
};

// Picks a child: given those that have room, ascending, and the child of the task's last producer
// or kNone; gives one of those children. Empty: the child with the fewest frames in flight; among
// equals that of the last producer, then the first.
using Policy = std::function<int32_t(std::span<const Candidate> candidates, int32_t preferred)>;

}  // namespace pto::hierarchy
