// Compute the smallest sizes for the needs of a run. Pure: no platform, no clock.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "history.hpp"
#include "options.hpp"

namespace pto::ring_buffer {

// The sizes of a run.
struct Sizes {
  Options options;
  uint64_t blocks = 0;  // clusters of the device
};

// The needs of the run. A need of 0, or not above the size of the run, is ignored.
struct Needs {
  uint64_t tasks[kRings];  // most tasks alive at once
  uint64_t edges[kRings];  // most entries of the dependency pool for one task
  uint64_t tensor_map;     // most entries alive at once
  uint64_t clusters;       // most clusters held at once
};

// The smallest sizes that suffice. A size shared by four rings stays one value; sizes that were
// large enough do not change.
struct Plan {
  Sizes sizes;
  // Which are too small as they are; the tensor map and the clusters count as ring 0.
  bool is_short[kResources][kRings];
  bool is_lower_bound;  // planning was cut short, planned data was read, or history was lost

  bool is_any_short(Resource resource) const {
    const bool* rings = is_short[static_cast<uint32_t>(resource)];
    return rings[0] || rings[1] || rings[2] || rings[3];
  }
};

Plan smallest_sizes(const Sizes& sizes, const Needs& needs, const History& history);

// Return whether a heap of `bytes` would have fitted the reservations in `history`.
bool is_heap_enough(const History& history, uint32_t ring, uint64_t bytes);

}  // namespace pto::ring_buffer
