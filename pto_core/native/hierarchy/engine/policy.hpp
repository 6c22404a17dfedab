// The policy that chooses the child of an unpinned single task.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace pto::hierarchy {

struct Candidate {
  int32_t child;
  uint64_t in_flight;
};

// Choose a child. Arguments: the children with free space in ascending order, the child of the
// task's last producer or kNone, and the number of the task. The result must be one of those
// children. If the function is empty, the engine chooses the child with the fewest frames in
// flight. If several children have the fewest, it prefers the child of the last producer, then the
// first child.
using Policy =
    std::function<int32_t(std::span<const Candidate> candidates, int32_t preferred, int64_t task)>;

}  // namespace pto::hierarchy
