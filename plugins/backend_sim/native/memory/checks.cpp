// The checks of device memory in checking mode.
#include <cinttypes>

#include "error.hpp"
#include "memory/device_memory.hpp"

namespace pto::sim {
namespace {

pto_status damaged(const Extent& extent, const Damage& damage, bool was_freed, pto_error* error) {
  fail(error, PTO_ERROR_ADDRESS,
       "%s: byte %" PRId64 " of the buffer at 0x%" PRIx64
       " (%zu bytes) was written, and perhaps bytes before it; check the indices and sizes of the "
       "kernel",
       was_freed ? "write to a freed buffer" : "write outside a buffer", damage.offset,
       extent.address, extent.bytes);
  if (error != nullptr) error->value = extent.address;
  if (error != nullptr) error->limit = extent.bytes;
  return PTO_ERROR_ADDRESS;
}

pto_status check_slab(const Extent& slab, pto_error* error) {
  const Damage zones = find_zone_damage(slab);
  return zones.found ? damaged(slab, zones, false, error) : PTO_OK;
}

}  // namespace

pto_status DeviceMemory::check_value(uint64_t value, const pto_host_range* ranges, uint32_t count,
                                     pto_error* error) const {
  for (uint32_t i = 0; i < count; ++i) {
    if (value - ranges[i].address >= ranges[i].bytes) continue;
    return fail(error, PTO_ERROR_ADDRESS,
                "0x%" PRIx64 " is host memory (byte %" PRIu64 " of a tensor argument of %" PRIu64
                " bytes); copy it to the device and pass the "
                "device address",
                value, value - ranges[i].address, ranges[i].bytes);
  }
  const std::lock_guard lock(mutex_);
  if (!arena_.contains(value)) return PTO_OK;
  Extent found;
  // The address after the last byte is valid: a program may pass it as the end of a buffer.
  if (live_buffer(value, found) && value - found.address <= found.bytes) return PTO_OK;
  return fail(
      error, PTO_ERROR_ADDRESS,
      "0x%" PRIx64
      " lies in device memory, but in no allocated buffer; check whether the buffer was freed, "
      "and check the offset",
      value);
}

pto_status DeviceMemory::check_range(uint64_t address, size_t bytes, const pto_host_range* ranges,
                                     uint32_t count, pto_error* error) const {
  const pto_status status = check_value(address, ranges, count, error);
  if (status != PTO_OK) return status;
  const std::lock_guard lock(mutex_);
  Extent found;
  if (!live_buffer(address, found)) {
    return fail(error, PTO_ERROR_ADDRESS,
                "0x%" PRIx64
                " is not an address of device memory; copy the data to a buffer of the device and "
                "pass its address",
                address);
  }
  const uint64_t offset = address - found.address;
  if (offset <= found.bytes && bytes <= found.bytes - offset) return PTO_OK;
  return fail(error, PTO_ERROR_ADDRESS,
              "%zu bytes at 0x%" PRIx64
              " exceed the buffer of %zu bytes, in which the address has the offset %" PRIu64
              "; name at most %" PRIu64 ", or allocate more",
              bytes, address, found.bytes, offset,
              offset <= found.bytes ? found.bytes - offset : uint64_t{0});
}

pto_status DeviceMemory::lend(uint64_t address, size_t bytes, pto_error* error) {
  if (!check_) return PTO_OK;
  const std::lock_guard lock(mutex_);
  const Block* block = live_block(address);
  const bool inside = block != nullptr && is_ring(*block) && address % Arena::kGranule == 0;
  if (!inside || bytes > extent(*block).address + extent(*block).bytes - address) {
    return fail(
        error, PTO_ERROR_ADDRESS,
        "%zu bytes at 0x%" PRIx64
        " cannot be lent: they are outside every ring, or the address is not a multiple of %zu",
        bytes, address, Arena::kGranule);
  }
  if (bytes == 0) return PTO_OK;
  Extent before;
  const Damage damage = slabs_.lend(address, bytes, before);
  return damage.found ? damaged(before, damage, false, error) : PTO_OK;
}

pto_status DeviceMemory::check_buffer(uint64_t address, pto_error* error) const {
  const std::lock_guard lock(mutex_);
  const Block* block = arena_.find(address);
  if (block == nullptr) return PTO_OK;
  const Extent* slab = is_ring(*block) ? slabs_.find(address) : nullptr;
  const pto_status status = slab == nullptr ? PTO_OK : check_slab(*slab, error);
  return status == PTO_OK ? check_block(*block, error) : status;
}

pto_status DeviceMemory::check_all(pto_error* error) const {
  const std::lock_guard lock(mutex_);
  return check_all_locked(error);
}

pto_status DeviceMemory::check_block(const Block& block, pto_error* error) const {
  const Extent whole = extent(block);
  const Damage zones = find_zone_damage(whole);
  if (zones.found) return damaged(whole, zones, false, error);
  if (block.owner != kQuarantined) return PTO_OK;
  const Damage content = find_use_after_free(whole);
  return content.found ? damaged(whole, content, true, error) : PTO_OK;
}

pto_status DeviceMemory::check_all_locked(pto_error* error) const {
  for (const auto& [address, slab] : slabs_) {
    const pto_status status = check_slab(slab, error);
    if (status != PTO_OK) return status;
  }
  for (const List& list : lists_) {
    for (const Block* block = list.head; block != nullptr; block = block->list_next) {
      const pto_status status = check_block(*block, error);
      if (status != PTO_OK) return status;
    }
  }
  for (const Block* block : quarantine_) {
    const pto_status status = check_block(*block, error);
    if (status != PTO_OK) return status;
  }
  return PTO_OK;
}

}  // namespace pto::sim
