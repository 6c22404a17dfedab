// Patterns that checking mode writes around and into buffers, and verifies later.
//
// A checked buffer lies between two zones. The first zone is the gap before the buffer, at least a
// granule. The second zone extends from the buffer's last byte to the end of its block, which is at
// least a gap. The value of a pattern byte depends only on its address, so two neighbouring buffers
// may share a zone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "memory/arena.hpp"

namespace pto::sim {

constexpr size_t kZoneBytes = Arena::kGranule;
constexpr size_t kMostGapBytes = 1ull << 20;

// The unused memory before a buffer, and at least after it. `has_gaps`: as large as the buffer
// itself, within limits.
constexpr size_t gap_bytes(size_t buffer_bytes, bool check, bool has_gaps) noexcept {
  if (!has_gaps) return check ? kZoneBytes : 0;
  const size_t whole = (buffer_bytes + kZoneBytes - 1) / kZoneBytes * kZoneBytes;
  return std::clamp(whole, kZoneBytes, kMostGapBytes);
}

// A buffer with its zones: [from, address) and [address + bytes, to).
struct Extent {
  uint64_t from = 0;
  uint64_t address = 0;
  size_t bytes = 0;
  uint64_t to = 0;
};

void paint_zones(const Extent& extent) noexcept;
// Fills a new buffer with a pattern by which a user can recognise bytes that were never written.
void paint_fresh(const Extent& extent) noexcept;
// Overwrites a freed buffer.
void paint_freed(const Extent& extent) noexcept;

struct Damage {
  bool found = false;
  int64_t offset = 0;  // offset of the first wrong byte from the buffer's first byte
};

Damage find_zone_damage(const Extent& extent) noexcept;
// Returns whether the buffer was written after it was freed.
Damage find_use_after_free(const Extent& extent) noexcept;

}  // namespace pto::sim
