#include "memory/device_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "error.hpp"
#include "waiting.hpp"

namespace pto::sim {
namespace {

constexpr size_t kUntrimmedBytes = 128ull << 20;
constexpr size_t kQuarantineBytes = 64ull << 20;

}  // namespace

pto_status DeviceMemory::open(size_t bytes, pto_error* error) {
  limit_bytes_ = bytes;
  size_t arena_bytes = check_ ? 2 * bytes + kQuarantineBytes : bytes;
  if (has_gaps_) arena_bytes += 2 * bytes + 2 * kMostGapBytes;
  if (arena_.open(arena_bytes)) return PTO_OK;
  return fail(error, PTO_ERROR_MEMORY,
              "cannot reserve %zu bytes of address space for device memory (%s); set "
              "sim.memory_bytes lower",
              bytes, std::strerror(errno));
}

pto_status DeviceMemory::allocate(size_t bytes, Owner owner, uint64_t* address, pto_error* error) {
  const std::lock_guard lock(mutex_);
  Block* block = take_block(bytes, owner);
  if (block == nullptr && !quarantine_.empty()) {
    const pto_status status = shrink_quarantine(0, error);
    if (status != PTO_OK) return status;
    block = take_block(bytes, owner);
  }
  if (block == nullptr) return exhausted(bytes, error);
  block->address = arena_.address(block) + gap_bytes(bytes, check_, has_gaps_);
  block->bytes = bytes;
  block->owner = static_cast<uint32_t>(owner);
  link(block);
  used_bytes_ += bytes;
  if (is_ring(*block)) ring_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_ - ring_bytes_);
  if (check_) paint_zones(extent(*block));
  if (check_ && !is_ring(*block)) paint_fresh(extent(*block));
  *address = block->address;
  return PTO_OK;
}

pto_status DeviceMemory::exhausted(size_t bytes, pto_error* error) const {
  fail(error, PTO_ERROR_MEMORY,
       "device memory exhausted: asked for %zu bytes, %zu of %zu are free%s; free buffers or "
       "raise sim.memory_bytes",
       bytes, limit_bytes_ - used_bytes_, limit_bytes_,
       used_bytes_ == 0 ? "" : " (may be fragmented)");
  if (error != nullptr) error->value = bytes;
  if (error != nullptr) error->limit = limit_bytes_;
  return PTO_ERROR_MEMORY;
}

pto_status DeviceMemory::free(uint64_t address, pto_error* error) {
  const std::lock_guard lock(mutex_);
  Block* block = live_block(address);
  if (block == nullptr || block->address != address) return not_a_buffer(address, error);
  return drop(block, error);
}

pto_status DeviceMemory::copy_in(uint64_t address, const void* host, size_t bytes,
                                 pto_error* error) {
  const pto_status status = copy_range(address, bytes, "to", error);
  if (status != PTO_OK) return status;
  const uint64_t start = clock_ns();
  if (bytes != 0) std::memcpy(reinterpret_cast<void*>(address), host, bytes);
  copy_ns_.fetch_add(clock_ns() - start, std::memory_order_relaxed);
  bytes_in_.fetch_add(bytes, std::memory_order_relaxed);
  copies_in_.fetch_add(1, std::memory_order_relaxed);
  return PTO_OK;
}

pto_status DeviceMemory::copy_out(void* host, uint64_t address, size_t bytes, pto_error* error) {
  const pto_status status = copy_range(address, bytes, "from", error);
  if (status != PTO_OK) return status;
  const uint64_t start = clock_ns();
  if (bytes != 0) std::memcpy(host, reinterpret_cast<const void*>(address), bytes);
  copy_ns_.fetch_add(clock_ns() - start, std::memory_order_relaxed);
  bytes_out_.fetch_add(bytes, std::memory_order_relaxed);
  copies_out_.fetch_add(1, std::memory_order_relaxed);
  return PTO_OK;
}

void DeviceMemory::begin_run() noexcept {
  for (auto* counter : {&bytes_in_, &bytes_out_, &copies_in_, &copies_out_, &copy_ns_}) {
    counter->store(0, std::memory_order_relaxed);
  }
  const std::lock_guard lock(mutex_);
  peak_bytes_ = used_bytes_ - ring_bytes_;
}

void DeviceMemory::end_run() {
  const std::lock_guard lock(mutex_);
  List& of_run = lists_[static_cast<uint32_t>(Owner::run)];
  while (of_run.head != nullptr) drop(of_run.head, nullptr);
  slabs_.clear();
}

void DeviceMemory::end_runtime() {
  const std::lock_guard lock(mutex_);
  List& of_runtime = lists_[static_cast<uint32_t>(Owner::runtime)];
  while (of_runtime.head != nullptr) drop(of_runtime.head, nullptr);
}

CopyCounts DeviceMemory::copies() const noexcept {
  CopyCounts counts;
  counts.bytes_in = bytes_in_.load(std::memory_order_relaxed);
  counts.bytes_out = bytes_out_.load(std::memory_order_relaxed);
  counts.copies_in = copies_in_.load(std::memory_order_relaxed);
  counts.copies_out = copies_out_.load(std::memory_order_relaxed);
  counts.ns = copy_ns_.load(std::memory_order_relaxed);
  return counts;
}

uint64_t DeviceMemory::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

pto_leak_report DeviceMemory::leaks() const {
  const std::lock_guard lock(mutex_);
  pto_leak_report report{};
  const Block* block = lists_[static_cast<uint32_t>(Owner::caller)].head;
  for (; block != nullptr; block = block->list_next) {
    ++report.buffers;
    report.bytes += block->bytes;
    if (report.first_address != 0 && report.first_address < block->address) continue;
    report.first_address = block->address;
    report.first_bytes = block->bytes;
  }
  return report;
}

// A copy may start anywhere in a buffer, but must not leave the buffer.
pto_status DeviceMemory::copy_range(uint64_t address, size_t bytes, const char* direction,
                                    pto_error* error) const {
  if (bytes == 0) return PTO_OK;
  const std::lock_guard lock(mutex_);
  Extent found;
  const bool inside = live_buffer(address, found) && address - found.address < found.bytes;
  if (inside && bytes <= found.bytes - (address - found.address)) return PTO_OK;
  if (inside) {
    fail(error, PTO_ERROR_ADDRESS,
         "cannot copy %zu bytes %s 0x%" PRIx64 ": that address is byte %" PRIu64
         " of a buffer of %zu bytes; copy at most %" PRIu64 ", or allocate a larger buffer",
         bytes, direction, address, address - found.address, found.bytes,
         found.bytes - (address - found.address));
  } else {
    fail(error, PTO_ERROR_ADDRESS,
         "cannot copy %zu bytes %s 0x%" PRIx64
         ": no live buffer of the device contains that address; check that the buffer was not "
         "freed and that this is not a host address",
         bytes, direction, address);
  }
  if (error != nullptr) error->value = bytes;
  if (error != nullptr && inside) error->limit = found.bytes;
  return PTO_ERROR_ADDRESS;
}

// In checking mode and with gaps a ring gets twice its size: a runtime leaves a gap after each
// buffer that it lends.
Block* DeviceMemory::take_block(size_t bytes, Owner owner) {
  if (bytes > limit_bytes_ - used_bytes_) return nullptr;
  size_t whole = std::max<size_t>(bytes, 1);
  if ((check_ || has_gaps_) && owner == Owner::runtime) whole *= 2;
  whole += 2 * gap_bytes(bytes, check_, has_gaps_);
  return arena_.allocate((whole + Arena::kGranule - 1) / Arena::kGranule);
}

Block* DeviceMemory::live_block(uint64_t address) const noexcept {
  Block* block = arena_.find(address);
  return block != nullptr && block->owner != kQuarantined ? block : nullptr;
}

// A ring counts as one buffer until a part of it is lent.
bool DeviceMemory::live_buffer(uint64_t address, Extent& found) const noexcept {
  const Block* block = live_block(address);
  if (block == nullptr) return false;
  found = extent(*block);
  if (!is_ring(*block) || !slabs_.any(found.from, found.to)) return true;
  const Extent* slab = slabs_.find(address);
  if (slab != nullptr) found = *slab;
  return slab != nullptr;
}

bool DeviceMemory::find_buffer(uint64_t address, uint64_t* begin, uint64_t* end) const {
  const std::lock_guard lock(mutex_);
  Extent found;
  if (!live_buffer(address, found)) return false;
  *begin = found.address;
  *end = found.address + found.bytes;
  return true;
}

Extent DeviceMemory::extent(const Block& block) const noexcept {
  const uint64_t from = arena_.address(&block);
  const uint64_t to = from + block.count * Arena::kGranule;
  if ((check_ || has_gaps_) && is_ring(block)) {
    const size_t gap = gap_bytes(block.bytes, check_, has_gaps_);
    return {from, block.address, to - gap - block.address, to};
  }
  return {from, block.address, block.bytes, to};
}

pto_status DeviceMemory::not_a_buffer(uint64_t address, pto_error* error) const {
  const Block* block = arena_.find(address);
  const bool freed = block != nullptr && block->owner == kQuarantined;
  return fail(error, PTO_ERROR_ADDRESS,
              "cannot free 0x%" PRIx64
              ": %s; free each buffer once, by the address that "
              "allocate returned",
              address,
              freed                      ? "it was freed already"
              : arena_.contains(address) ? "no live buffer starts there"
                                         : "it is not device memory");
}

void DeviceMemory::link(Block* block) noexcept {
  List& list = lists_[block->owner];
  block->list_previous = nullptr;
  block->list_next = list.head;
  if (list.head != nullptr) list.head->list_previous = block;
  list.head = block;
}

void DeviceMemory::unlink(Block* block) noexcept {
  if (block->list_next != nullptr) block->list_next->list_previous = block->list_previous;
  if (block->list_previous != nullptr) {
    block->list_previous->list_next = block->list_next;
  } else {
    lists_[block->owner].head = block->list_next;
  }
}

pto_status DeviceMemory::drop(Block* block, pto_error* error) {
  unlink(block);
  used_bytes_ -= block->bytes;
  if (is_ring(*block)) ring_bytes_ -= block->bytes;
  if (!check_) {
    give_back(block);
    return PTO_OK;
  }
  if (!is_ring(*block)) return quarantine(block, error);
  const Extent ring = extent(*block);
  slabs_.forget(ring.from, ring.to);
  const pto_status status = check_block(*block, error);
  give_back(block);
  return status;
}

pto_status DeviceMemory::quarantine(Block* block, pto_error* error) {
  const pto_status status = check_block(*block, error);
  // Restore the patterns, so that each fault is reported only once.
  paint_zones(extent(*block));
  paint_freed(extent(*block));
  block->owner = kQuarantined;
  quarantine_.push_back(block);
  quarantine_bytes_ += block->count * Arena::kGranule;
  const pto_status old = shrink_quarantine(kQuarantineBytes, status == PTO_OK ? error : nullptr);
  return status == PTO_OK ? old : status;
}

pto_status DeviceMemory::shrink_quarantine(size_t bytes, pto_error* error) {
  pto_status first = PTO_OK;
  while (quarantine_bytes_ > bytes) {
    Block* block = quarantine_.front();
    quarantine_.pop_front();
    quarantine_bytes_ -= block->count * Arena::kGranule;
    if (first == PTO_OK) first = check_block(*block, error);
    give_back(block);
  }
  return first;
}

void DeviceMemory::give_back(Block* block) noexcept {
  const size_t bytes = block->count * Arena::kGranule;
  if (bytes < Arena::kLargeBytes) untrimmed_bytes_ += bytes;
  arena_.release(block);
  if (untrimmed_bytes_ < kUntrimmedBytes) return;
  untrimmed_bytes_ = 0;
  arena_.trim();
}

// The checks of device memory in checking mode.

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
