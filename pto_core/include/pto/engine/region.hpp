// A piece of memory as tasks name it: a range of bytes, a box of a frame, or a key.
//
// A frame is a buffer with its raw shape: first byte, dimensions in memory order, incarnation. A
// box is what a view takes of each dimension. Dimensions of size 1 are left out and the fastest one
// is counted in bytes, so that equal memory in equal order is an equal frame whatever its data type
// and however it is permuted. A box that is all of its frame is a range.
//
// Two regions overlap exactly as their boxes do when they share a frame; otherwise when their byte
// hulls do, which is exact for ranges and contiguous boxes and conservative for others. A key has
// an address and no bytes; it overlaps keys of the same address, and nothing else.
#pragma once

#include <cstdint>

namespace pto::engine {

constexpr uint32_t kMaxDims = 5;

struct Region {
  uint64_t begin = 0;  // the byte hull is [begin, end)
  uint64_t end = 0;    // begin: a key
  uint64_t base = 0;   // of the frame
  int64_t tag = -1;    // which incarnation of the memory; equal memory with another tag is dead
  uint32_t dims = 0;   // of the frame; 0: a range or a key
  bool contiguous = true;
  // Fastest dimension first, in bytes. A range has its hull in low[0] and high[0].
  uint64_t raw[kMaxDims];
  uint64_t low[kMaxDims];
  uint64_t high[kMaxDims];

  bool is_key() const { return begin == end; }

  static Region key(uint64_t address) {
    Region region;
    region.begin = region.end = address;
    return region;
  }

  static Region range(uint64_t begin, uint64_t bytes) {
    Region region;
    region.set_range(begin, bytes);
    return region;
  }

  void set_range(uint64_t address, uint64_t bytes) {
    begin = address;
    end = bytes <= ~address ? address + bytes : ~uint64_t{0};
    dims = 0;
    contiguous = true;
    low[0] = begin;
    high[0] = end;
  }
};

// Puts a region together from its dimensions, the fastest first.
class RegionBuilder {
 public:
  // `first_byte`: of the view, not of the buffer. `region` is a new one; finish() completes it.
  RegionBuilder(Region& region, uint64_t first_byte, uint64_t element_bytes, int64_t tag)
      : region_(region),
        first_byte_(first_byte),
        volume_(element_bytes),
        stride_(element_bytes),
        scale_(element_bytes),
        last_(element_bytes) {
    region.tag = tag;
  }

  // `extent` elements from `low` of a dimension of `raw`: low + extent <= raw.
  void add(uint64_t raw, uint64_t low, uint64_t extent) {
    volume_ *= extent;
    if (raw == 1) return;
    before_ += low * stride_;
    last_ += (extent - 1) * stride_;
    stride_ *= raw;
    is_whole_ = is_whole_ && extent == raw;
    region_.raw[dims_] = raw * scale_;
    region_.low[dims_] = low * scale_;
    region_.high[dims_] = (low + extent) * scale_;
    ++dims_;
    scale_ = 1;
  }

  void finish() {
    if (volume_ == 0) {
      region_.begin = region_.end = first_byte_;
    } else if (is_whole_) {
      region_.set_range(first_byte_, volume_);
    } else {
      region_.dims = dims_;
      region_.base = first_byte_ - before_;
      region_.begin = first_byte_;
      region_.end = first_byte_ + last_;
      region_.contiguous = last_ == volume_;
    }
  }

 private:
  Region& region_;
  uint64_t first_byte_;
  uint64_t volume_;      // bytes of the view
  uint64_t stride_;      // bytes of one step in the next dimension
  uint64_t scale_;       // of the next dimension; the bytes of an element until there was one
  uint64_t last_;        // bytes from the first to the end of the last
  uint64_t before_ = 0;  // bytes of the frame before the view
  uint32_t dims_ = 0;
  bool is_whole_ = true;
};

inline bool boxes_meet(const uint64_t* low_a, const uint64_t* high_a, const uint64_t* low_b,
                       const uint64_t* high_b, uint32_t dims) {
  for (uint32_t dim = 0; dim < dims; ++dim) {
    if (low_a[dim] >= high_b[dim] || low_b[dim] >= high_a[dim]) return false;
  }
  return true;
}

// Whether the first box lies in the second.
inline bool box_lies_in(const uint64_t* low_a, const uint64_t* high_a, const uint64_t* low_b,
                        const uint64_t* high_b, uint32_t dims) {
  for (uint32_t dim = 0; dim < dims; ++dim) {
    if (low_a[dim] < low_b[dim] || high_a[dim] > high_b[dim]) return false;
  }
  return true;
}

}  // namespace pto::engine
