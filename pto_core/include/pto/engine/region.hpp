// A region: the memory that a task accesses. It is a byte range, a box of a frame, or a key.
//
// A frame is a buffer with a raw shape: its first byte, its dimensions in memory order, and its
// incarnation (memory that is used again has a new one). A box is the part of a frame that a view
// selects in each dimension. A frame omits dimensions of size 1 and counts the fastest dimension in
// bytes. So all views of a buffer have the same frame, even if their data types differ or
// their dimensions are permuted. A box that covers its whole frame is stored as a range.
//
// Two regions of the same frame overlap if and only if their boxes overlap. Regions of different
// frames count as overlapping if their byte hulls overlap. This rule is exact for ranges and
// contiguous boxes, and conservative for other boxes. A key has an address and no bytes; it
// overlaps only keys with the same address.
#pragma once

#include <cstdint>

namespace pto::engine {

constexpr uint32_t kMaxDims = 5;

struct Region {
  // [begin, end) is the byte hull, the smallest byte range that contains the region
  uint64_t begin = 0;
  uint64_t end = 0;   // equal to begin if the region is a key
  uint64_t base = 0;  // address of the frame
  int64_t tag = -1;   // the incarnation of the memory; an entry with an earlier tag is dead
  uint32_t dims = 0;  // number of dimensions of the frame; 0: a range or a key
  bool contiguous = true;
  // The bounds of the box, fastest dimension first, in bytes. A range stores its hull in low[0] and
  // high[0].
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

// Builds a region from its dimensions, the fastest first.
class RegionBuilder {
 public:
  // `first_byte`: the address of the first byte of the view, not of the buffer. `region` must be a
  // new object; finish() completes it.
  RegionBuilder(Region& region, uint64_t first_byte, uint64_t element_bytes, int64_t tag)
      : region_(region),
        first_byte_(first_byte),
        volume_(element_bytes),
        stride_(element_bytes),
        scale_(element_bytes),
        last_(element_bytes) {
    region.tag = tag;
  }

  // Add a dimension of `raw` elements. The view selects `extent` elements of it, starting with
  // element `low`; low + extent <= raw.
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
  uint64_t volume_;      // size of the view in bytes
  uint64_t stride_;      // stride of the next dimension in the buffer, in bytes
  uint64_t scale_;       // unit of the next dimension: bytes for the fastest (element size), then
                         // elements (1)
  uint64_t last_;        // number of bytes from the first byte to the end of the last element
  uint64_t before_ = 0;  // number of bytes from the start of the frame to the view
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

inline bool is_same_frame(const Region& a, const Region& b) {
  if (a.dims == 0 || a.dims != b.dims || a.base != b.base) return false;
  for (uint32_t dim = 0; dim < a.dims; ++dim) {
    if (a.raw[dim] != b.raw[dim]) return false;
  }
  return true;
}

// Return whether the regions overlap by the rule at the top of this file. Tags are ignored.
inline bool is_overlap(const Region& a, const Region& b) {
  if (a.is_key() || b.is_key()) return a.is_key() && b.is_key() && a.begin == b.begin;
  if (a.begin >= b.end || b.begin >= a.end) return false;
  return !is_same_frame(a, b) || boxes_meet(a.low, a.high, b.low, b.high, a.dims);
}

// Return whether the first box lies inside the second.
inline bool box_lies_in(const uint64_t* low_a, const uint64_t* high_a, const uint64_t* low_b,
                        const uint64_t* high_b, uint32_t dims) {
  for (uint32_t dim = 0; dim < dims; ++dim) {
    if (low_a[dim] < low_b[dim] || high_a[dim] > high_b[dim]) return false;
  }
  return true;
}

}  // namespace pto::engine
