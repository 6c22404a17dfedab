// The buffers that a runtime lends from its rings. Checking mode records them.
//
// Buffers of a ring are not freed: a lent buffer exists until its memory is lent again. The runtime
// leaves at least one granule between two buffers. This granule is a guard zone of both.
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
  // Records a lent buffer. First checks the zones of each buffer that it replaces. If such a zone
  // was written, `damaged` receives the replaced buffer.
  Damage lend(uint64_t address, size_t bytes, Extent& damaged);
  // Returns the buffer that contains `address` or ends at it, or null.
  const Extent* find(uint64_t address) const noexcept;
  // Whether any part of [from, to) is lent.
  bool any(uint64_t from, uint64_t to) const noexcept;
  // Removes all buffers in [from, to) without a check.
  void forget(uint64_t from, uint64_t to) noexcept;
  void clear() noexcept { slabs_.clear(); }

  auto begin() const noexcept { return slabs_.begin(); }
  auto end() const noexcept { return slabs_.end(); }

 private:
  // the key is the first byte of the buffer; buffers do not overlap, but their zones may
  std::map<uint64_t, Extent> slabs_;
};

}  // namespace pto::sim
