// The exact bytes that two regions share.
#pragma once

#include <cstdint>

#include "pto/engine/region.hpp"

namespace pto::insight {

struct SharedBytes {
  uint64_t first = 0;  // address of the first shared byte
  uint64_t last = 0;   // address after the last shared byte
  uint64_t count = 0;  // 0: the regions are disjoint

  bool any() const { return count != 0; }
};

// The cost is the number of contiguous pieces of both regions; constant for boxes of one frame that
// do not overlap, and for ranges. A key shares no bytes.
SharedBytes shared_bytes(const engine::Region& a, const engine::Region& b);

}  // namespace pto::insight
