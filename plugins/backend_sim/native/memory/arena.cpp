#include "memory/arena.hpp"

#include <sys/mman.h>

#include <bit>

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

}  // namespace pto::sim
