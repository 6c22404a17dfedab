// The reading side of a ring. Only one thread at a time may call it.
//
// The reader does not trust the ring. It copies a head before it checks it, so that a later write
// cannot change the checked value. It rejects a head whose item is longer than the published bytes.
#pragma once

#include <cstring>

#include "layout.hpp"

namespace pto::shm {

template <class Head>
class Reader {
  static_assert(sizeof(Head) == kLine);

 public:
  enum class Found { kNothing, kHead, kBroken };

  struct Item {
    Head head;
    const std::byte* data;
    uint64_t end;  // index of the byte after the item
  };

  // `largest`: the limit for the data of one item, in bytes.
  Reader(const Ring& ring, const uint64_t* published, uint64_t largest)
      : ring_(ring), published_(published), largest_(largest) {}

  // Load the published index. Return false if its value is invalid.
  bool refresh() {
    const uint64_t published = load(*published_);
    if (published == seen_) return true;
    const bool is_invalid =
        published < seen_ || published % kLine != 0 || published - freed_ > ring_.size;
    if (is_invalid) return false;
    seen_ = published;
    fetch_ahead(next_);
    return true;
  }

  bool has_more() const { return next_ != seen_; }

  // Read the next item, if refresh() has made one visible.
  Found next(Item& item) {
    if (!has_more()) return Found::kNothing;
    std::memcpy(&item.head, ring_.at(next_), kLine);
    if (item.head.kind == kGap) {
      // A gap extends to the end of the ring, and an item must follow it.
      if (ring_.until_end(next_) >= seen_ - next_) return Found::kBroken;
      next_ += ring_.until_end(next_);
      std::memcpy(&item.head, ring_.at(next_), kLine);
      if (item.head.kind == kGap) return Found::kBroken;
    }
    const uint64_t lines = kLine + whole_lines(item.head.bytes);
    if (item.head.bytes > largest_ || lines > seen_ - next_ || lines > ring_.until_end(next_))
      return Found::kBroken;
    item.data = ring_.at(next_) + kLine;
    next_ += lines;
    item.end = next_;
    fetch_ahead(next_);
    return Found::kHead;
  }

  // Mark all items before `index` as free. Their data is no longer read.
  void free_until(uint64_t index) { freed_ = index; }
  uint64_t freed() const { return freed_; }

 private:
  // Prefetch the lines of the next item, which another core wrote.
  void fetch_ahead(uint64_t index) const {
    for (uint64_t line = 0; line < kAhead; line += kLine)
      __builtin_prefetch(ring_.at(index + line));
  }

  static constexpr uint64_t kAhead = 4 * kLine;

  const Ring ring_;
  const uint64_t* const published_;
  const uint64_t largest_;
  uint64_t seen_ = 0;   // published index at the last refresh()
  uint64_t next_ = 0;   // index of the next head
  uint64_t freed_ = 0;  // the items before this index are free
};

}  // namespace pto::shm
