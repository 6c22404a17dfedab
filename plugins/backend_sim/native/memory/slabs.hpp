// Buffers that a runtime lends out of its rings, as checking mode sees them.
//
// A ring has no frees: what lies there is a buffer until something else is lent over it. The
// runtime leaves at least a granule between two buffers, which guards both.
//
// Not thread-safe; DeviceMemory holds the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "memory/red_zones.hpp"

namespace pto::sim {

class Slabs {
 public:
  // The zones of whatever the new buffer takes the place of are looked at before they are painted
  // over; `damaged` is that buffer when somebody wrote there.
  Damage lend(uint64_t address, size_t bytes, Extent& damaged);
  // The buffer that `address` lies in, or is the end of; null when there is none.
  const Extent* find(uint64_t address) const noexcept;
  // Whether anything is lent in [from, to).
  bool any(uint64_t from, uint64_t to) const noexcept;
  // Forgets all in [from, to), and does not look at them.
  void forget(uint64_t from, uint64_t to) noexcept;
  void clear() noexcept { slabs_.clear(); }

  auto begin() const noexcept { return slabs_.begin(); }
  auto end() const noexcept { return slabs_.end(); }

 private:
  std::map<uint64_t, Extent> slabs_;  // by their first byte; no two overlap, zones apart
};

}  // namespace pto::sim
