#include "memory/red_zones.hpp"

#include <cstring>

namespace pto::sim {
namespace {

constexpr unsigned char kZone = 0xA7;
constexpr unsigned char kFresh = 0xCB;
constexpr unsigned char kFreed = 0xDF;

unsigned char* pointer(uint64_t address) noexcept {
  return reinterpret_cast<unsigned char*>(address);
}

// First byte in [from, to) that is not `pattern`, or `to`.
uint64_t first_other(uint64_t from, uint64_t to, unsigned char pattern) noexcept {
  // All equal when the first byte is right and each equals the next; the library compares fast.
  if (from == to) return to;
  if (*pointer(from) == pattern &&
      std::memcmp(pointer(from), pointer(from + 1), to - from - 1) == 0) {
    return to;
  }
  while (from < to && *pointer(from) == pattern) ++from;
  return from;
}

Damage difference(const Block& block, uint64_t from, uint64_t to, unsigned char pattern) noexcept {
  const uint64_t at = first_other(from, to, pattern);
  if (at == to) return {};
  return {true, static_cast<int64_t>(at) - static_cast<int64_t>(block.address)};
}

}  // namespace

void paint_fresh(const Block& block, uint64_t block_address) noexcept {
  const uint64_t end = block_address + block.count * Arena::kGranule;
  std::memset(pointer(block_address), kZone, block.address - block_address);
  std::memset(pointer(block.address), kFresh, block.bytes);
  std::memset(pointer(block.address + block.bytes), kZone, end - block.address - block.bytes);
}

void paint_freed(const Block& block) noexcept {
  std::memset(pointer(block.address), kFreed, block.bytes);
}

Damage find_zone_damage(const Block& block, uint64_t block_address) noexcept {
  const Damage before = difference(block, block_address, block.address, kZone);
  if (before.found) return before;
  const uint64_t end = block_address + block.count * Arena::kGranule;
  return difference(block, block.address + block.bytes, end, kZone);
}

Damage find_use_after_free(const Block& block) noexcept {
  return difference(block, block.address, block.address + block.bytes, kFreed);
}

}  // namespace pto::sim
