// Device memory: one sparse mapping, divided by a two-level segregated fit allocator.
//
// Sizes are counted in granules of 1024 bytes, the alignment that the ABI guarantees. Blocks cover
// the mapping without gaps; two free blocks are never adjacent. The records lie outside the
// mapping, so that no kernel can damage them. Allocation and release take constant time.
//
// Not thread-safe; DeviceMemory holds the lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "memory/start_map.hpp"

namespace pto::sim {

struct Block {
  size_t first = 0;  // offset from the start of the arena, in granules
  size_t count = 0;  // size in granules
  Block* previous = nullptr;
  Block* next = nullptr;
  bool is_free = true;
  // The list that contains the block: for a free block, the list of its size class. The owner of an
  // allocated block may use these two fields.
  Block* list_previous = nullptr;
  Block* list_next = nullptr;
  uint64_t address = 0;  // address of the caller's first byte, set by DeviceMemory
  size_t bytes = 0;      // requested size
  uint32_t owner = 0;
  uint32_t number = 0;  // index of this record; constant
};

class Arena {
 public:
  static constexpr size_t kGranule = 1024;
  // When a block of at least this size is released, its pages return to the system at once.
  static constexpr size_t kLargeBytes = 16ull << 20;

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Reserves the mapping. Returns false if the system refuses; errno contains the reason.
  bool open(size_t bytes);

  // Returns null if no free block is large enough. `granules` is not 0.
  Block* allocate(size_t granules);
  void release(Block* block) noexcept;
  // Returns the allocated block that contains `address`; null if there is none.
  Block* find(uint64_t address) const noexcept;
  // Returns the pages of all large free blocks to the system.
  void trim() noexcept;

  bool contains(uint64_t address) const noexcept { return address - base_ < bytes_; }
  uint64_t address(const Block* block) const noexcept { return base_ + block->first * kGranule; }
  uint64_t base() const noexcept { return base_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr uint32_t kSubdivisions = 8;
  static constexpr uint32_t kLevels = 40;
  struct SizeClass {
    uint32_t level;
    uint32_t slot;
  };

  static SizeClass size_class(size_t granules) noexcept;
  Block* find_free(size_t granules) const noexcept;
  Block* first_fit(SizeClass which, size_t granules) const noexcept;
  void link(Block* block) noexcept;
  void unlink(Block* block) noexcept;
  void absorb_next(Block* block) noexcept;
  void split(Block* block, size_t granules);
  Block* new_record();
  void return_pages(const Block* block) noexcept;

  uint64_t base_ = 0;
  size_t bytes_ = 0;
  uint64_t* start_words_ = nullptr;  // memory for starts_; a sparse mapping
  // the number of each allocated block's record, indexed by the first granule of the block; a
  // sparse mapping
  uint32_t* block_of_ = nullptr;
  StartMap starts_;  // start granules of allocated blocks
  std::deque<Block> records_;
  Block* unused_records_ = nullptr;  // linked by list_next
  uint64_t levels_ = 0;              // bit l is set if some class of level l has a free block
  std::array<uint8_t, kLevels> slots_{};
  std::array<std::array<Block*, kSubdivisions>, kLevels> free_{};
};

}  // namespace pto::sim
