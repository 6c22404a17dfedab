// Compute the smallest sizes for the requirements of a run. Pure functions: they use no platform
// and no clock.
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

// The requirements of the run. A value of 0, or not above the size of the run, is ignored.
struct Needs {
  uint64_t tasks[kRings];  // maximum number of tasks alive at once
  uint64_t edges[kRings];  // maximum number of dependency entries for one task
  uint64_t tensor_map;     // maximum number of entries alive at once
  uint64_t clusters;       // maximum number of clusters held at once
};

// The smallest sizes that suffice. A size that the four rings share stays one value; sizes that
// were large enough do not change.
struct Plan {
  Sizes sizes;
  // The sizes that are too small now. The tensor map and the clusters count as ring 0.
  bool is_short[kResources][kRings];
  bool is_lower_bound;  // true if planning ended early, planned data was read, or history was lost

  bool is_any_short(Resource resource) const {
    const bool* rings = is_short[static_cast<uint32_t>(resource)];
    return rings[0] || rings[1] || rings[2] || rings[3];
  }
};

Plan smallest_sizes(const Sizes& sizes, const Needs& needs, const History& history);

// Return whether a heap of `bytes` would have been sufficient for the reservations in `history`.
bool is_heap_enough(const History& history, uint32_t ring, uint64_t bytes);

}  // namespace pto::ring_buffer
