// The set of granules at which allocated blocks start: a tree of bitmaps. Each bit of a level
// states whether a word of the level below has any bit set. Setting, clearing and searching
// backwards take at most one step per level; the largest memory has seven levels.
//
// Not thread-safe; DeviceMemory's lock guards the Arena that owns the map.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pto::sim {

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

}  // namespace pto::sim
