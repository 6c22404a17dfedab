// Device memory: one sparse mapping, divided by a two-level segregated fit allocator.
//
// Sizes are counted in granules of 1024 bytes, the alignment that the ABI guarantees. Blocks cover
// the mapping without gaps; two free blocks are never adjacent. The records lie outside the
// mapping, so that no kernel can damage them. Allocation and release take constant time.
//
// Not thread-safe; DeviceMemory holds the lock.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

namespace pto::sim {

// The set of granules at which allocated blocks start: a tree of bitmaps. Each bit of a level
// states whether a word of the level below has any bit set. Setting, clearing and searching
// backwards take at most one step per level; the largest memory has seven levels.
//
// Not thread-safe; DeviceMemory's lock guards the Arena that owns the map.
class StartMap {
 public:
  static constexpr size_t kNone = ~size_t{0};

  // Returns the number of words that a map of `count` granules needs. All words must be zero when
  // open() is called.
  static size_t words(size_t count) noexcept {
    size_t total = 0;
    for (size_t level = count; level > 1 || total == 0;) total += level = words_of(level);
    return total;
  }

  // `memory` has words(count) words and outlives the map.
  void open(uint64_t* memory, size_t count) noexcept {
    for (size_t level = count; level > 1 || depth_ == 0;) {
      levels_[depth_++] = memory;
      memory += level = words_of(level);
    }
  }

  void insert(size_t granule) noexcept {
    for (size_t level = 0; level < depth_; ++level, granule /= 64) {
      uint64_t& word = levels_[level][granule / 64];
      const bool had_any = word != 0;
      word |= uint64_t{1} << (granule % 64);
      if (had_any) return;
    }
  }

  void erase(size_t granule) noexcept {
    for (size_t level = 0; level < depth_; ++level, granule /= 64) {
      uint64_t& word = levels_[level][granule / 64];
      word &= ~(uint64_t{1} << (granule % 64));
      if (word != 0) return;
    }
  }

  // Returns the last granule in the set that is not after `granule`, or kNone.
  size_t find_back(size_t granule) const noexcept {
    const uint64_t up_to = ~uint64_t{0} >> (63 - granule % 64);
    const uint64_t first = levels_[0][granule / 64] & up_to;
    if (first != 0) return granule / 64 * 64 + last_bit(first);
    // On higher levels, search only the words before the current one.
    size_t end = granule / 64;
    for (size_t level = 1; level < depth_; ++level, end /= 64) {
      const uint64_t before = (uint64_t{1} << (end % 64)) - 1;
      const uint64_t word = levels_[level][end / 64] & before;
      if (word != 0) return descend(level, end / 64 * 64 + last_bit(word));
    }
    return kNone;
  }

 private:
  static size_t words_of(size_t bits) noexcept { return (bits + 63) / 64; }
  static size_t last_bit(uint64_t word) noexcept {
    return static_cast<size_t>(63 - std::countl_zero(word));
  }

  size_t descend(size_t level, size_t index) const noexcept {
    while (level-- > 0) index = index * 64 + last_bit(levels_[level][index]);
    return index;
  }

  std::array<uint64_t*, 8> levels_{};
  size_t depth_ = 0;
};

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

// Patterns that checking mode writes around and into buffers, and verifies later.
//
// A checked buffer lies between two zones. The first zone is the gap before the buffer, at least a
// granule. The second zone extends from the buffer's last byte to the end of its block, which is at
// least a gap. The value of a pattern byte depends only on its address, so two neighbouring buffers
// may share a zone.
constexpr size_t kZoneBytes = Arena::kGranule;
constexpr size_t kMostGapBytes = 1ull << 20;

// The unused memory before a buffer, and at least after it. `has_gaps`: as large as the buffer
// itself, within limits.
constexpr size_t gap_bytes(size_t buffer_bytes, bool check, bool has_gaps) noexcept {
  if (!has_gaps) return check ? kZoneBytes : 0;
  const size_t whole = (buffer_bytes + kZoneBytes - 1) / kZoneBytes * kZoneBytes;
  return std::clamp(whole, kZoneBytes, kMostGapBytes);
}

// A buffer with its zones: [from, address) and [address + bytes, to).
struct Extent {
  uint64_t from = 0;
  uint64_t address = 0;
  size_t bytes = 0;
  uint64_t to = 0;
};

void paint_zones(const Extent& extent) noexcept;
// Fills a new buffer with a pattern by which a user can recognise bytes that were never written.
void paint_fresh(const Extent& extent) noexcept;
// Overwrites a freed buffer.
void paint_freed(const Extent& extent) noexcept;

struct Damage {
  bool found = false;
  int64_t offset = 0;  // offset of the first wrong byte from the buffer's first byte
};

Damage find_zone_damage(const Extent& extent) noexcept;
// Returns whether the buffer was written after it was freed.
Damage find_use_after_free(const Extent& extent) noexcept;

// The buffers that a runtime lends from its rings. Checking mode records them.
//
// Buffers of a ring are not freed: a lent buffer exists until its memory is lent again. The runtime
// leaves at least one granule between two buffers. This granule is a guard zone of both.
//
// Not thread-safe; DeviceMemory holds the lock.
class Slabs {
 public:
  // Records a lent buffer. First checks the zones of each buffer that it replaces. If such a zone
  // was written, `damaged` receives the replaced buffer.
  Damage lend(uint64_t address, size_t bytes, Extent& damaged);
  // Returns the buffer that contains `address` or ends at it, or null.
  const Extent* find(uint64_t address) const noexcept;
  // Whether any part of [from, to) is lent.
  bool any(uint64_t from, uint64_t to) const noexcept;
  // Removes all buffers in [from, to) without a check.
  void forget(uint64_t from, uint64_t to) noexcept;
  void clear() noexcept { slabs_.clear(); }

  auto begin() const noexcept { return slabs_.begin(); }
  auto end() const noexcept { return slabs_.end(); }

 private:
  // the key is the first byte of the buffer; buffers do not overlap, but their zones may
  std::map<uint64_t, Extent> slabs_;
};

}  // namespace pto::sim
