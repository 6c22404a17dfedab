#include "memory/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace pto::sim {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kTrimBytes = 64 * 1024;  // a smaller free block keeps its pages

void* map_sparse(size_t bytes) noexcept {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

Arena::~Arena() {
  if (base_ != 0) munmap(reinterpret_cast<void*>(base_), bytes_);
  const size_t granules = bytes_ / kGranule;
  if (block_of_ != nullptr) munmap(block_of_, granules * sizeof *block_of_);
  if (start_words_ != nullptr) munmap(start_words_, StartMap::words(granules) * sizeof(uint64_t));
}

bool Arena::open(size_t bytes) {
  bytes_ = (bytes + kPage - 1) / kPage * kPage;
  void* memory = map_sparse(bytes_);
  if (memory == nullptr) return false;
  base_ = reinterpret_cast<uint64_t>(memory);
  const size_t granules = bytes_ / kGranule;
  block_of_ = static_cast<uint32_t*>(map_sparse(granules * sizeof *block_of_));
  if (block_of_ == nullptr) return false;
  start_words_ = static_cast<uint64_t*>(map_sparse(StartMap::words(granules) * sizeof(uint64_t)));
  if (start_words_ == nullptr) return false;
  starts_.open(start_words_, granules);
  Block* whole = new_record();
  whole->count = granules;
  link(whole);
  return true;
}

Block* Arena::allocate(size_t granules) {
  Block* block = find_free(granules);
  if (block == nullptr) return nullptr;
  unlink(block);
  if (block->count > granules) split(block, granules);
  block->is_free = false;
  block_of_[block->first] = block->number;
  starts_.insert(block->first);
  return block;
}

void Arena::release(Block* block) noexcept {
  starts_.erase(block->first);
  if (block->count * kGranule >= kLargeBytes) return_pages(block);
  block->is_free = true;
  if (block->next != nullptr && block->next->is_free) {
    unlink(block->next);
    absorb_next(block);
  }
  if (block->previous != nullptr && block->previous->is_free) {
    block = block->previous;
    unlink(block);
    absorb_next(block);
  }
  link(block);
}

Block* Arena::find(uint64_t address) const noexcept {
  if (!contains(address)) return nullptr;
  const size_t granule = (address - base_) / kGranule;
  const size_t start = starts_.find_back(granule);
  if (start == StartMap::kNone) return nullptr;
  const Block& block = records_[block_of_[start]];
  return granule - start < block.count ? const_cast<Block*>(&block) : nullptr;
}

void Arena::trim() noexcept {
  for (const auto& level : free_) {
    for (const Block* block : level) {
      for (; block != nullptr; block = block->list_next) return_pages(block);
    }
  }
}

// Sizes below eight granules have a class each. Above, there are eight classes for each power of
// two.
Arena::SizeClass Arena::size_class(size_t granules) noexcept {
  if (granules < kSubdivisions) return {0, static_cast<uint32_t>(granules)};
  const uint32_t power = static_cast<uint32_t>(std::bit_width(granules)) - 1;
  return {power - 2, static_cast<uint32_t>(granules >> (power - 3)) & (kSubdivisions - 1)};
}

// Returns a block of the first non-empty class in which every block is large enough. If there is no
// such class, searches the class that may contain a large enough block.
Block* Arena::find_free(size_t granules) const noexcept {
  size_t rounded = granules;
  if (granules >= kSubdivisions) rounded += (size_t{1} << (std::bit_width(granules) - 4)) - 1;
  const SizeClass from = size_class(rounded);
  if (from.level >= kLevels) return nullptr;
  const uint32_t slots = slots_[from.level] & (0xFFu << from.slot);
  if (slots != 0) return free_[from.level][static_cast<size_t>(std::countr_zero(slots))];
  const uint64_t levels = levels_ & ~((uint64_t{2} << from.level) - 1);
  if (levels == 0) return first_fit(size_class(granules), granules);
  const auto level = static_cast<size_t>(std::countr_zero(levels));
  return free_[level][static_cast<size_t>(std::countr_zero(slots_[level]))];
}

Block* Arena::first_fit(SizeClass which, size_t granules) const noexcept {
  Block* block = free_[which.level][which.slot];
  while (block != nullptr && block->count < granules) block = block->list_next;
  return block;
}

void Arena::link(Block* block) noexcept {
  const auto [level, slot] = size_class(block->count);
  Block*& head = free_[level][slot];
  block->list_previous = nullptr;
  block->list_next = head;
  if (head != nullptr) head->list_previous = block;
  head = block;
  slots_[level] = static_cast<uint8_t>(slots_[level] | 1u << slot);
  levels_ |= uint64_t{1} << level;
}

void Arena::unlink(Block* block) noexcept {
  const auto [level, slot] = size_class(block->count);
  if (block->list_next != nullptr) block->list_next->list_previous = block->list_previous;
  if (block->list_previous != nullptr) {
    block->list_previous->list_next = block->list_next;
    return;
  }
  free_[level][slot] = block->list_next;
  if (block->list_next != nullptr) return;
  slots_[level] = static_cast<uint8_t>(slots_[level] & ~(1u << slot));
  if (slots_[level] == 0) levels_ &= ~(uint64_t{1} << level);
}

void Arena::absorb_next(Block* block) noexcept {
  Block* gone = block->next;
  block->count += gone->count;
  block->next = gone->next;
  if (gone->next != nullptr) gone->next->previous = block;
  gone->list_next = unused_records_;
  unused_records_ = gone;
}

void Arena::split(Block* block, size_t granules) {
  Block* rest = new_record();
  rest->first = block->first + granules;
  rest->count = block->count - granules;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->count = granules;
  link(rest);
}

Block* Arena::new_record() {
  if (unused_records_ == nullptr) {
    Block& record = records_.emplace_back();
    record.number = static_cast<uint32_t>(records_.size() - 1);
    return &record;
  }
  Block* record = unused_records_;
  unused_records_ = record->list_next;
  const uint32_t number = record->number;
  *record = Block{};
  record->number = number;
  return record;
}

void Arena::return_pages(const Block* block) noexcept {
  if (block->count * kGranule < kTrimBytes) return;
  const uint64_t from = (address(block) + kPage - 1) / kPage * kPage;
  const uint64_t to = (address(block) + block->count * kGranule) / kPage * kPage;
  if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

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
