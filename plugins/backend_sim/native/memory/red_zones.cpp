#include "memory/red_zones.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace pto::sim {
namespace {

constexpr size_t kPeriod = Arena::kGranule;
using Pattern = std::array<unsigned char, kPeriod>;

// The pattern of zones and freed buffers changes from byte to byte, so that a kernel rarely writes
// the value that is already in memory. It contains no byte values that are frequent in numbers
// (0x00 to 0x80 and 0xFF).
constexpr Pattern make_pattern(uint32_t state) noexcept {
  Pattern pattern{};
  for (unsigned char& byte : pattern) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<unsigned char>(0x81 + (state >> 16) % 126);
  }
  return pattern;
}

constexpr Pattern kZone = make_pattern(1);
constexpr Pattern kFreed = make_pattern(2);
constexpr unsigned char kFresh = 0xCB;

unsigned char* pointer(uint64_t address) noexcept {
  return reinterpret_cast<unsigned char*>(address);
}

// Returns the number of bytes in [address, to) up to the next start of the pattern.
size_t piece(uint64_t address, uint64_t to) noexcept {
  return std::min<size_t>(to - address, kPeriod - address % kPeriod);
}

void paint(uint64_t from, uint64_t to, const Pattern& pattern) noexcept {
  while (from < to) {
    const size_t bytes = piece(from, to);
    std::memcpy(pointer(from), pattern.data() + from % kPeriod, bytes);
    from += bytes;
  }
}

// Returns the address of the first byte in [from, to) that differs from the pattern, or `to`.
uint64_t first_other(uint64_t from, uint64_t to, const Pattern& pattern) noexcept {
  while (from < to) {
    const unsigned char* expected = pattern.data() + from % kPeriod;
    const size_t bytes = piece(from, to);
    if (std::memcmp(pointer(from), expected, bytes) != 0) {
      while (*pointer(from) == *expected++) ++from;
      return from;
    }
    from += bytes;
  }
  return to;
}

Damage difference(const Extent& extent, uint64_t from, uint64_t to,
                  const Pattern& pattern) noexcept {
  const uint64_t at = first_other(from, to, pattern);
  if (at == to) return {};
  return {true, static_cast<int64_t>(at) - static_cast<int64_t>(extent.address)};
}

}  // namespace

void paint_zones(const Extent& extent) noexcept {
  paint(extent.from, extent.address, kZone);
  paint(extent.address + extent.bytes, extent.to, kZone);
}

void paint_fresh(const Extent& extent) noexcept {
  std::memset(pointer(extent.address), kFresh, extent.bytes);
}

void paint_freed(const Extent& extent) noexcept {
  paint(extent.address, extent.address + extent.bytes, kFreed);
}

Damage find_zone_damage(const Extent& extent) noexcept {
  const Damage before = difference(extent, extent.from, extent.address, kZone);
  if (before.found) return before;
  return difference(extent, extent.address + extent.bytes, extent.to, kZone);
}

Damage find_use_after_free(const Extent& extent) noexcept {
  return difference(extent, extent.address, extent.address + extent.bytes, kFreed);
}

}  // namespace pto::sim
