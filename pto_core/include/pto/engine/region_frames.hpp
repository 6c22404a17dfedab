// The frames of a region index, found by base, raw shape and tag. Empty frames are kept for a
// while.
//
// An empty frame records that no region of its memory is in the index, so that lookups of memory
// that no task has written stay cheap. If there are too many empty frames, the oldest one is
// removed.
//
// Only one thread may use this object.
#pragma once

#include <cstdint>

#include "pto/engine/memory.hpp"
#include "pto/engine/region.hpp"

namespace pto::engine {

constexpr uint32_t kNoFrame = 0;

struct RegionFrame {
  uint64_t base;
  int64_t tag;
  uint32_t dims;
  uint32_t first_layer;
  uint32_t live;  // number of boxes
  bool shared;    // whether ranges or other frames may cover the same memory
  bool in_use;
  uint8_t misses;          // number of consecutive searches in its memory that found no overlap
  uint64_t raw[kMaxDims];  // fastest first; the fastest in bytes
  uint32_t node;           // its node among the ranges
  uint32_t next;           // next frame in the bucket, or in the free list
  uint32_t empty_next;     // the next younger empty frame
  uint32_t empty_previous;
  uint32_t found_next;  // the next frame in the result of a search

  uint64_t bytes() const {
    uint64_t product = 1;
    for (uint32_t dim = 0; dim < dims; ++dim) product *= raw[dim];
    return product;
  }

  bool is_of(const Region& region) const {
    if (base != region.base || tag != region.tag || dims != region.dims) return false;
    for (uint32_t dim = 0; dim < dims; ++dim) {
      if (raw[dim] != region.raw[dim]) return false;
    }
    return true;
  }
};

class Frames {
 public:
  static constexpr uint32_t kMaxEmpty = 256;

  // Create a table for at most `frames` frames that are not empty.
  bool create(Memory& memory, uint32_t frames) {
    memory_ = &memory;
    limit_ = frames + kMaxEmpty + 2;
    bucket_count_ = 64;
    while (bucket_count_ < limit_ / 4) bucket_count_ *= 2;
    frames_ = static_cast<RegionFrame*>(memory.reserve(limit_ * sizeof(RegionFrame)));
    buckets_ = static_cast<Bucket*>(memory.reserve(bucket_count_ * sizeof(Bucket)));
    return frames_ != nullptr && buckets_ != nullptr;
  }

  void destroy() {
    if (memory_ == nullptr) return;
    memory_->release(frames_, limit_ * sizeof(RegionFrame));
    memory_->release(buckets_, bucket_count_ * sizeof(Bucket));
  }

  // Grow to `frames` frames that are not empty. All indices stay valid. Return false if memory is
  // exhausted.
  bool grow(uint32_t frames) {
    const uint32_t limit = frames + kMaxEmpty + 2;
    if (!memory_->enlarge(frames_, next_, limit_, limit)) return false;
    limit_ = limit;
    return true;
  }

  void restart() {
    if (++stamp_ == 0) clear_stamps();
    next_ = 1;
    free_ = oldest_empty_ = youngest_empty_ = kNoFrame;
    empty_count_ = 0;
  }

  RegionFrame& operator[](uint32_t index) const { return frames_[index]; }
  // The frames used since the restart are 1 to end() - 1.
  uint32_t end() const { return next_; }

  uint32_t find(const Region& region) const {
    const Bucket& bucket = bucket_of(region.base, region.tag);
    uint32_t index = bucket.stamp == stamp_ ? bucket.frame : kNoFrame;
    while (index != kNoFrame && !frames_[index].is_of(region)) index = frames_[index].next;
    return index;
  }

  // Return the empty frame that must be removed before the next add(), or kNoFrame.
  uint32_t surplus() const { return empty_count_ >= kMaxEmpty ? oldest_empty_ : kNoFrame; }

  // Return a new, empty frame. The caller must first remove the frame that surplus() returns; then
  // the table always has space.
  uint32_t add(const Region& region) {
    const uint32_t index = take();
    RegionFrame& frame = frames_[index];
    frame.base = region.base;
    frame.tag = region.tag;
    frame.dims = region.dims;
    for (uint32_t dim = 0; dim < region.dims; ++dim) frame.raw[dim] = region.raw[dim];
    frame.first_layer = frame.live = frame.node = 0;
    frame.misses = 0;
    frame.shared = false;
    frame.in_use = true;
    Bucket& bucket = bucket_of(region.base, region.tag);
    frame.next = bucket.stamp == stamp_ ? bucket.frame : kNoFrame;
    bucket = {index, stamp_};
    became_empty(index);
    return index;
  }

  // Free the frame, which must be empty and unreferenced.
  void remove(uint32_t index) {
    RegionFrame& frame = frames_[index];
    not_empty(index);
    uint32_t* link = &bucket_of(frame.base, frame.tag).frame;
    while (*link != index) link = &frames_[*link].next;
    *link = frame.next;
    frame.in_use = false;
    frame.next = free_;
    free_ = index;
  }

  void became_empty(uint32_t index) {
    RegionFrame& frame = frames_[index];
    frame.empty_next = kNoFrame;
    frame.empty_previous = youngest_empty_;
    (youngest_empty_ == kNoFrame ? oldest_empty_ : frames_[youngest_empty_].empty_next) = index;
    youngest_empty_ = index;
    ++empty_count_;
  }

  void not_empty(uint32_t index) {
    const RegionFrame& frame = frames_[index];
    (frame.empty_previous == kNoFrame ? oldest_empty_ : frames_[frame.empty_previous].empty_next) =
        frame.empty_next;
    (frame.empty_next == kNoFrame ? youngest_empty_ : frames_[frame.empty_next].empty_previous) =
        frame.empty_previous;
    --empty_count_;
  }

 private:
  struct Bucket {
    uint32_t frame;
    uint32_t stamp;
  };

  uint32_t take() {
    if (free_ == kNoFrame) return next_++;
    const uint32_t index = free_;
    free_ = frames_[index].next;
    return index;
  }

  Bucket& bucket_of(uint64_t base, int64_t tag) const {
    const uint64_t mixed =
        (base + static_cast<uint64_t>(tag) * 0xC2B2AE3D27D4EB4Fu) * 0x9E3779B97F4A7C15u;
    return buckets_[mixed >> 40 & (bucket_count_ - 1)];
  }

  // The counter overflows once in 2^32 runs.
  void clear_stamps() {
    for (uint64_t index = 0; index < bucket_count_; ++index) buckets_[index].stamp = 0;
    stamp_ = 1;
  }

  Memory* memory_ = nullptr;
  RegionFrame* frames_ = nullptr;
  Bucket* buckets_ = nullptr;
  uint64_t bucket_count_ = 0;
  uint32_t limit_ = 0;
  uint32_t next_ = 1;
  uint32_t free_ = kNoFrame;
  uint32_t oldest_empty_ = kNoFrame;
  uint32_t youngest_empty_ = kNoFrame;
  uint32_t empty_count_ = 0;
  uint32_t stamp_ = 0;
};

}  // namespace pto::engine
