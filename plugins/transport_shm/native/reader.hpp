// The side of a ring that takes things out: one thread at a time.
//
// What lies in the ring may be anything. Heads are copied before they are looked at, so that they
// cannot change afterwards, and followed only where they stay inside what was published.
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
    uint64_t end;  // index behind it
  };

  // `largest` data of one item, in bytes.
  Reader(const Ring& ring, const uint64_t* published, uint64_t largest)
      : ring_(ring), published_(published), largest_(largest) {}

  // Sees what was put in meanwhile. False: the index cannot be.
  bool look() {
    const uint64_t published = load(*published_);
    if (published == seen_) return true;
    const bool cannot_be =
        published < seen_ || published % kLine != 0 || published - freed_ > ring_.size;
    if (cannot_be) return false;
    seen_ = published;
    fetch_ahead(next_);
    return true;
  }

  bool has_more() const { return next_ != seen_; }

  // The next one of what look() saw.
  Found next(Item& item) {
    if (!has_more()) return Found::kNothing;
    std::memcpy(&item.head, ring_.at(next_), kLine);
    if (item.head.kind == kGap) {
      // A gap hides nothing: something follows it, at the beginning.
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

  // Everything before `index` is done with.
  void free_until(uint64_t index) { freed_ = index; }
  uint64_t freed() const { return freed_; }

 private:
  // The lines come from another core, and each head says where the next one is.
  void fetch_ahead(uint64_t index) const {
    for (uint64_t line = 0; line < kAhead; line += kLine)
      __builtin_prefetch(ring_.at(index + line));
  }

  static constexpr uint64_t kAhead = 4 * kLine;

  const Ring ring_;
  const uint64_t* const published_;
  const uint64_t largest_;
  uint64_t seen_ = 0;   // published, as last looked at
  uint64_t next_ = 0;   // the next head
  uint64_t freed_ = 0;  // what the other side was told
};

}  // namespace pto::shm
