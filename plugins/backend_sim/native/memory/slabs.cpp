#include "memory/slabs.hpp"

namespace pto::sim {
namespace {

Extent extent_of(uint64_t address, size_t bytes) noexcept {
  const uint64_t end = (address + bytes + kZoneBytes - 1) / kZoneBytes * kZoneBytes;
  return {address - kZoneBytes, address, bytes, end + kZoneBytes};
}

}  // namespace

Damage Slabs::lend(uint64_t address, size_t bytes, Extent& damaged) {
  const Extent extent = extent_of(address, bytes);
  Damage first;
  auto slab = slabs_.upper_bound(extent.from);
  if (slab != slabs_.begin() && std::prev(slab)->second.to - kZoneBytes > extent.from) --slab;
  while (slab != slabs_.end() && slab->first < extent.to) {
    const Damage damage = find_zone_damage(slab->second);
    if (damage.found && !first.found) {
      first = damage;
      damaged = slab->second;
    }
    slab = slabs_.erase(slab);
  }
  paint_zones(extent);
  paint_fresh(extent);
  slabs_.emplace(address, extent);
  return first;
}

const Extent* Slabs::find(uint64_t address) const noexcept {
  auto slab = slabs_.upper_bound(address);
  if (slab == slabs_.begin()) return nullptr;
  const Extent& extent = (--slab)->second;
  return address - extent.address <= extent.bytes ? &extent : nullptr;
}

bool Slabs::any(uint64_t from, uint64_t to) const noexcept {
  const auto slab = slabs_.lower_bound(from);
  return slab != slabs_.end() && slab->first < to;
}

void Slabs::forget(uint64_t from, uint64_t to) noexcept {
  slabs_.erase(slabs_.lower_bound(from), slabs_.lower_bound(to));
}

}  // namespace pto::sim
