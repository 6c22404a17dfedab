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
  kRetired,  // the value is dead, but its buffer still owns the memory
  kGone      // the buffer is dead; another buffer may own the memory
};

enum class RegionRemoval : uint32_t { kStale, kCovered };

// The result of a look-up. The next operation on the same region reuses it instead of a new search.
// It is valid until the index changes.
struct RegionPlace {
  uint64_t changes = 0;      // version of the index at the look-up; 0: no look-up was made
  uint64_t prepared = 0;     // version at which prepare() found frame, layer and cell
  uint64_t cell = 0;         // cell number in the layer
  uint32_t frame = 0;        // kNoFrame for a range or a key
  uint32_t layer = 0;        // layer of the region's cell; kNoLayer: unknown
  uint32_t node = 0;         // node of exactly this region, or kNoNode
  bool is_complete = false;  // no other region overlaps this one
};

}  // namespace pto::engine
