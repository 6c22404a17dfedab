// What a region index and its owner say to each other.
//
// A Policy says what has become of a value, and hears which are gone:
//   RegionState state(Value&)             asked of what a lookup meets
//   void removed(Value&, RegionRemoval)   the value leaves the index
#pragma once

#include <cstdint>

namespace pto::engine {

enum class RegionState : uint32_t {
  kLive,
  kRetired,  // means nothing any more; its memory may be named again
  kGone      // the memory now belongs to something else
};

enum class RegionRemoval : uint32_t { kStale, kCovered };

// Where a lookup came to, so that what follows for the same region need not look again. Good for
// any index while that has not changed.
struct RegionPlace {
  uint64_t changes = 0;      // of the index when it was taken; 0: not taken
  uint64_t prepared = 0;     // the same, when prepare() took frame, layer and cell
  uint64_t cell = 0;         // of the layer
  uint32_t frame = 0;        // kNoFrame: a range or a key
  uint32_t layer = 0;        // where the region is or goes; kNoLayer: not known
  uint32_t node = 0;         // of exactly this region, or kNoNode
  bool is_complete = false;  // nothing else overlaps
};

}  // namespace pto::engine
