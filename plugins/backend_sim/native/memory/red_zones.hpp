// Patterns that checking mode writes around and into buffers, and looks for again.
//
// A checked buffer lies between two zones: a granule before its first byte, and from the byte after
// its last one to the end of its block, at least another granule.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/arena.hpp"

namespace pto::sim {

constexpr size_t kZoneBytes = Arena::kGranule;

// Writes the zones of a fresh buffer and makes its content recognisable as never written.
void paint_fresh(const Block& block, uint64_t block_address) noexcept;
// Overwrites a freed buffer.
void paint_freed(const Block& block) noexcept;

struct Damage {
  bool found = false;
  int64_t offset = 0;  // of the first wrong byte, from the buffer's first byte
};

Damage find_zone_damage(const Block& block, uint64_t block_address) noexcept;
// Whether somebody wrote to a buffer after it was freed.
Damage find_use_after_free(const Block& block) noexcept;

}  // namespace pto::sim
