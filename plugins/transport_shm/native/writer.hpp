// The writing side of a ring. Only one thread at a time may call it.
//
// A head (pto_frame, Record) is one cache line and has a member `kind`.
#pragma once

#include <cstring>

#include "layout.hpp"

namespace pto::shm {

template <class Head>
class Writer {
  static_assert(sizeof(Head) == kLine);

 public:
  // `freed`: the index, written by the other side, up to which it has freed the ring.
  Writer(const Ring& ring, const uint64_t* freed) : ring_(ring), freed_(freed) {}

  // Copy an item into the ring. Return false if the ring has no space. The reader sees the item
  // only after the caller has published end().
  bool put(const Head& head, const void* data, uint64_t bytes) {
    const uint64_t lines = kLine + whole_lines(bytes);
    const uint64_t to_end = ring_.until_end(end_);
    const uint64_t gap = lines > to_end ? to_end : 0;
    if (!has_space(gap + lines)) return false;
    if (gap != 0) put_gap();
    std::byte* place = ring_.at(end_ + gap);
    std::memcpy(place, &head, kLine);
    if (bytes != 0) std::memcpy(place + kLine, data, bytes);
    end_ += gap + lines;
    return true;
  }

  // Return the index that the caller must publish after put().
  uint64_t end() const { return end_; }

  // Return whether the other side's index had an invalid value. The invalid value is not used.
  bool is_broken() const { return is_broken_; }

 private:
  bool has_space(uint64_t bytes) {
    if (end_ + bytes - seen_freed_ <= ring_.size) return true;
    const uint64_t freed = load(*freed_);
    if (freed > end_ || freed < seen_freed_) {
      is_broken_ = true;
      return false;
    }
    seen_freed_ = freed;
    return end_ + bytes - freed <= ring_.size;
  }

  void put_gap() {
    Head head{};
    head.kind = kGap;
    std::memcpy(ring_.at(end_), &head, kLine);
  }

  const Ring ring_;
  const uint64_t* const freed_;
  uint64_t end_ = 0;
  uint64_t seen_freed_ = 0;  // the last value that was read; a lower bound of the current value
  bool is_broken_ = false;
};

}  // namespace pto::shm
