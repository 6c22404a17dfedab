// A ring of ranges. Ranges are reserved at the head and freed in order at the tail.
//
// Offsets are virtual: 64 bits, never wrapping. Lap k of a ring of n units is [k * n, (k + 1) * n).
// Each range lies within one lap: a range that does not fit in the rest of a lap starts at the next
// lap.
//
// Invariants: the place of a range depends only on the size of the ring and on the ranges reserved
// before it, not on the ranges that were freed; a refused reservation changes nothing; ranges
// between tail and head do not overlap in the ring.
//
// Only the thread that reserves ranges uses this object. Each call receives the current tail.
#pragma once

#include <cstdint>

namespace pto::engine {

class HeapRing {
 public:
  struct Range {
    bool fits;
    uint64_t begin;     // virtual offset
    uint64_t end;       // virtual offset
    uint64_t position;  // index of the first unit in the memory of the ring
  };

  // Create a ring of `size` units. The first `unusable` units are never reserved.
  explicit HeapRing(uint64_t size = 0, uint64_t unusable = 0) { restart(size, unusable); }

  // Empty the ring and start at offset 0 again.
  void restart(uint64_t size, uint64_t unusable = 0) {
    capacity_ = size - unusable;
    unusable_ = unusable;
    head_ = lap_ = skip_begin_ = skip_end_ = 0;
  }

  // Reserve a range. `tail`: the end of the newest freed range, or 0 if no range was freed. If the
  // sizes of the ring and of all ranges are multiples of an alignment, so are all offsets.
  Range try_reserve(uint64_t units, uint64_t tail) {
    const uint64_t next_lap = lap_ + capacity_;
    if (head_ + units <= next_lap) {
      const uint64_t used = head_ - after_skip(tail);
      if (used + units > capacity_) return {false, 0, 0, 0};
      return take(units);
    }
    // If all ranges are freed, no unit before the next lap is in use.
    const uint64_t oldest = tail == head_ ? next_lap : after_skip(tail);
    if (units > capacity_ || next_lap + units - oldest > capacity_) return {false, 0, 0, 0};
    skip_begin_ = head_;
    skip_end_ = head_ = lap_ = next_lap;
    return take(units);
  }

  // Return whether a range of this size fits into the empty ring.
  bool can_ever_fit(uint64_t units) const { return units <= capacity_; }

  uint64_t capacity() const { return capacity_; }
  uint64_t head() const { return head_; }
  // Return the number of units between the oldest range that has not been freed and the head.
  uint64_t used(uint64_t tail) const { return head_ - after_skip(tail); }

 private:
  // Units skipped at the end of a lap belong to no range. Only the newest skip can be after the
  // tail: an older skip is at least one ring size before the head.
  uint64_t after_skip(uint64_t tail) const {
    return tail >= skip_begin_ && tail < skip_end_ ? skip_end_ : tail;
  }

  Range take(uint64_t units) {
    const uint64_t begin = head_;
    head_ += units;
    const Range range{true, begin, head_, unusable_ + (begin - lap_)};
    if (head_ == lap_ + capacity_) lap_ = head_;
    return range;
  }

  uint64_t capacity_;
  uint64_t unusable_;
  uint64_t head_;  // the next range begins here or at the next lap
  uint64_t lap_;   // start of the head's lap: lap_ <= head_ < lap_ + capacity_
  uint64_t skip_begin_;
  uint64_t skip_end_;
};

}  // namespace pto::engine
