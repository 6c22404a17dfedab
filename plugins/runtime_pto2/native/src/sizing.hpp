// Computes the smallest sizes that meet the requirements of a run. Pure functions: they use no
// platform and no clock.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "history.hpp"
#include "options.hpp"

namespace pto::ring_buffer {

// The sizes of a run.
struct Sizes {
  Options options;
  uint64_t blocks = 0;  // number of clusters of the device
};

// The requirements of the run. A requirement that the sizes of the run already meet is ignored.
struct Needs {
  uint64_t tasks[kRings];  // maximum number of tasks alive at once
  uint64_t edges[kRings];  // maximum number of dependency entries for one task
  uint64_t tensor_map;     // maximum number of entries alive at once
  uint64_t clusters;       // maximum number of clusters held at once
};

// The smallest sizes that suffice. If the four rings have a common size, they keep a common size.
// Sizes that were large enough do not change.
struct Plan {
  Sizes sizes;
  // Which sizes of the run are too small. For the tensor map and the clusters, only the entry of
  // ring 0 is used.
  bool is_short[kResources][kRings];
  // set if planning ended early, planned data was read, or the history is incomplete
  bool is_lower_bound;

  bool is_any_short(Resource resource) const {
    const bool* rings = is_short[static_cast<uint32_t>(resource)];
    return rings[0] || rings[1] || rings[2] || rings[3];
  }
};

Plan smallest_sizes(const Sizes& sizes, const Needs& needs, const History& history);

// Return whether a heap of `bytes` would have been sufficient for the reservations in `history`.
bool is_heap_enough(const History& history, uint32_t ring, uint64_t bytes);

}  // namespace pto::ring_buffer
