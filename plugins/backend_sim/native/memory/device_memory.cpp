#include "memory/device_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "error/error.hpp"
#include "waiting/futex.hpp"

namespace pto::sim {
namespace {

constexpr size_t kUntrimmedBytes = 128ull << 20;
constexpr size_t kQuarantineBytes = 64ull << 20;
// A quarantined block keeps its owner's field free for this mark.
constexpr uint32_t kQuarantined = 2;

}  // namespace

pto_status DeviceMemory::open(size_t bytes, pto_error* error) {
  if (arena_.open(bytes)) return PTO_OK;
  return fail(error, PTO_ERROR_MEMORY,
              "cannot reserve %zu bytes of address space for device memory (%s); set "
              "sim.memory_bytes lower",
              bytes, std::strerror(errno));
}

pto_status DeviceMemory::allocate(size_t bytes, Owner owner, uint64_t* address, pto_error* error) {
  const std::lock_guard lock(mutex_);
  Block* block = take_block(bytes);
  if (block == nullptr && !quarantine_.empty()) {
    const pto_status status = shrink_quarantine(0, error);
    if (status != PTO_OK) return status;
    block = take_block(bytes);
  }
  if (block == nullptr) {
    fail(error, PTO_ERROR_MEMORY,
         "device memory exhausted: asked for %zu bytes, %zu of %zu are free%s; free buffers or "
         "raise sim.memory_bytes",
         bytes, arena_.bytes() - used_bytes_, arena_.bytes(),
         used_bytes_ == 0 ? "" : " (perhaps in pieces)");
    if (error != nullptr) error->value = bytes;
    if (error != nullptr) error->limit = arena_.bytes();
    return PTO_ERROR_MEMORY;
  }
  block->address = arena_.address(block) + (check_ ? kZoneBytes : 0);
  block->bytes = bytes;
  block->owner = static_cast<uint32_t>(owner);
  link(block);
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  if (check_) paint_fresh(*block, arena_.address(block));
  *address = block->address;
  return PTO_OK;
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
  peak_bytes_ = used_bytes_;
}

void DeviceMemory::end_run() {
  const std::lock_guard lock(mutex_);
  List& of_run = lists_[static_cast<uint32_t>(Owner::run)];
  while (of_run.head != nullptr) drop(of_run.head, nullptr);
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
  for (const List& list : lists_) {
    for (const Block* block = list.head; block != nullptr; block = block->list_next) {
      ++report.buffers;
      report.bytes += block->bytes;
      if (report.first_address != 0 && report.first_address < block->address) continue;
      report.first_address = block->address;
      report.first_bytes = block->bytes;
    }
  }
  return report;
}

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
  const Block* block = live_block(value);
  // One past the end is a legal address of a buffer's end.
  if (block != nullptr && value - block->address <= block->bytes) return PTO_OK;
  return fail(error, PTO_ERROR_ADDRESS,
              "0x%" PRIx64
              " lies in device memory, but in no buffer that is allocated now; was "
              "it freed, or the offset wrong?",
              value);
}

pto_status DeviceMemory::check_buffer(uint64_t address, pto_error* error) const {
  const std::lock_guard lock(mutex_);
  const Block* block = arena_.find(address);
  return block == nullptr ? PTO_OK : check_block(*block, error);
}

pto_status DeviceMemory::check_all(pto_error* error) const {
  const std::lock_guard lock(mutex_);
  return check_all_locked(error);
}

// Copies of parts of buffers start anywhere in them, but never leave them.
pto_status DeviceMemory::copy_range(uint64_t address, size_t bytes, const char* direction,
                                    pto_error* error) const {
  if (bytes == 0) return PTO_OK;
  const std::lock_guard lock(mutex_);
  const Block* block = live_block(address);
  const bool inside = block != nullptr && address - block->address < block->bytes;
  if (inside && bytes <= block->bytes - (address - block->address)) return PTO_OK;
  if (inside) {
    fail(error, PTO_ERROR_ADDRESS,
         "cannot copy %zu bytes %s 0x%" PRIx64 ": that is byte %" PRIu64
         " of a buffer of %zu bytes; copy at most %" PRIu64 ", or allocate a larger buffer",
         bytes, direction, address, address - block->address, block->bytes,
         block->bytes - (address - block->address));
  } else {
    fail(error, PTO_ERROR_ADDRESS,
         "cannot copy %zu bytes %s 0x%" PRIx64
         ": no live buffer of the device holds that address; was it freed, or is it of the host?",
         bytes, direction, address);
  }
  if (error != nullptr) error->value = bytes;
  if (error != nullptr && inside) error->limit = block->bytes;
  return PTO_ERROR_ADDRESS;
}

Block* DeviceMemory::take_block(size_t bytes) {
  if (bytes > arena_.bytes()) return nullptr;
  const size_t whole = std::max<size_t>(bytes, 1) + (check_ ? 2 * kZoneBytes : 0);
  return arena_.allocate((whole + Arena::kGranule - 1) / Arena::kGranule);
}

Block* DeviceMemory::live_block(uint64_t address) const noexcept {
  Block* block = arena_.find(address);
  return block != nullptr && block->owner != kQuarantined ? block : nullptr;
}

pto_status DeviceMemory::not_a_buffer(uint64_t address, pto_error* error) const {
  const Block* block = arena_.find(address);
  const bool freed = block != nullptr && block->owner == kQuarantined;
  return fail(error, PTO_ERROR_ADDRESS,
              "cannot free 0x%" PRIx64
              ": %s; free each buffer once, by the address that "
              "allocate gave",
              address,
              freed                      ? "it was freed already"
              : arena_.contains(address) ? "no live buffer starts there"
                                         : "it is not device memory");
}

pto_status DeviceMemory::damaged(const Block& block, const Damage& damage, bool was_freed,
                                 pto_error* error) const {
  fail(error, PTO_ERROR_ADDRESS,
       "%s: byte %" PRId64 " of the buffer at 0x%" PRIx64
       " (%zu bytes) was written, and perhaps bytes before it; look for an index or size that is "
       "wrong",
       was_freed ? "write to a freed buffer" : "write outside a buffer", damage.offset,
       block.address, block.bytes);
  if (error != nullptr) error->value = block.address;
  if (error != nullptr) error->limit = block.bytes;
  return PTO_ERROR_ADDRESS;
}

pto_status DeviceMemory::check_block(const Block& block, pto_error* error) const {
  const Damage zones = find_zone_damage(block, arena_.address(&block));
  if (zones.found) return damaged(block, zones, false, error);
  if (block.owner != kQuarantined) return PTO_OK;
  const Damage content = find_use_after_free(block);
  return content.found ? damaged(block, content, true, error) : PTO_OK;
}

pto_status DeviceMemory::check_all_locked(pto_error* error) const {
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
  if (!check_) {
    give_back(block);
    return PTO_OK;
  }
  const pto_status status = check_block(*block, error);
  // Repaired, so that one mistake is reported once.
  paint_fresh(*block, arena_.address(block));
  paint_freed(*block);
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

}  // namespace pto::sim
