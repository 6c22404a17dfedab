// The smallest sizes for what a run needed. Pure: no platform, no clock.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "history.hpp"
#include "options.hpp"

namespace pto::ring_buffer {

// What a run has.
struct Sizes {
  Options options;
  uint64_t blocks = 0;  // clusters of the device
};

// What it needed. A need of 0, or not above what the run has, is no finding.
struct Needs {
  uint64_t tasks[kRings];  // most tasks alive at once
  uint64_t edges[kRings];  // most entries of the dependency pool for one task
  uint64_t tensor_map;     // most entries alive at once
  uint64_t clusters;       // most clusters held at once
};

// The smallest sizes that suffice. A size that four rings share stays one value for all of them;
// what was large enough stays as it was.
struct Plan {
  Sizes sizes;
  // Which are too small as they are; the tensor map and the clusters count as ring 0.
  bool is_short[kResources][kRings];
  bool is_lower_bound;  // planning was cut short, planned data was looked at, or history was lost

  bool is_any_short(Resource resource) const {
    const bool* rings = is_short[static_cast<uint32_t>(resource)];
    return rings[0] || rings[1] || rings[2] || rings[3];
  }
};

Plan smallest_sizes(const Sizes& sizes, const Needs& needs, const History& history);

// Whether a heap of `bytes` would have met what `history` says was asked of the ring.
bool is_heap_enough(const History& history, uint32_t ring, uint64_t bytes);

}  // namespace pto::ring_buffer
