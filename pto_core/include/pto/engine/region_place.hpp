// The interface between a region index and its owner.
//
// A Policy reports the state of a value, and is notified of removals:
//   RegionState state(Value&)             called for each value that a look-up visits
//   void removed(Value&, RegionRemoval)   called when a value is removed from the index
#pragma once

#include <cstdint>

namespace pto::engine {

enum class RegionState : uint32_t {
  kLive,
  kRetired,  // the value is dead; its memory may be named again
  kGone      // the memory now belongs to another buffer
};

enum class RegionRemoval : uint32_t { kStale, kCovered };

// The result of a lookup, so that the next operation on the same region need not search again. It
// is valid for an index that has not changed.
struct RegionPlace {
  uint64_t changes = 0;      // version of the index when it was taken; 0: not taken
  uint64_t prepared = 0;     // version when prepare() found frame, layer and cell
  uint64_t cell = 0;         // cell number in the layer
  uint32_t frame = 0;        // kNoFrame: a range or a key
  uint32_t layer = 0;        // the cell of the region; kNoLayer: unknown
  uint32_t node = 0;         // node of exactly this region, or kNoNode
  bool is_complete = false;  // no other region overlaps
};

}  // namespace pto::engine
