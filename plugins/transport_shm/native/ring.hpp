// The memory layout of one connection, and both sides of its rings.
//
//   page 0   indices, each in two cache lines that only one side writes; a line of flags
//   frames   ring, parent to child: a pto_frame and its data, rounded up to whole lines
//   answers  ring, child to parent: a Record and its data, rounded up to whole lines
//
// Indices count bytes since the connection was opened and never decrease. An index modulo the size
// of its ring is an offset in that ring. An item is always contiguous: if it does not fit before
// the end of the ring, a head of kind kGap fills the rest, and the item starts at offset 0. Each
// ring has space for one such gap.
//
// All bytes are zero when the connection is opened. A side first writes bytes and then, with
// seq_cst, the index that covers them. Because of this store, pto/engine/bell.hpp needs no store of
// its own before it checks for sleepers.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pto/abi/endpoint.h"

namespace pto::shm {

constexpr uint64_t kLine = 64;
constexpr uint64_t kPage = 4096;
// the kind of a head that fills the rest of the ring; the reader continues at offset 0
constexpr uint16_t kGap = 0xFFFF;

// The head of an answer. Consecutive successes need no record: `Indices::completed` counts them.
struct Record {
  uint64_t number;
  uint64_t succeeded;  // the value of `completed` when the child wrote this record
  uint32_t bytes;
  uint16_t kind;
  uint16_t outcome;
  uint8_t unused[kLine - 24];
};
static_assert(sizeof(Record) == kLine);

enum class End : uint32_t { kUsed = 0, kClosed = 1 };

// Each index has two cache lines, because processors prefetch lines in pairs.
struct alignas(2 * kLine) Indices {
  // Written by the parent.
  alignas(2 * kLine) uint64_t submitted;
  alignas(2 * kLine) uint64_t polled;  // the child may overwrite records before this index
  // Written by the child.
  alignas(2 * kLine) uint64_t taken;
  alignas(2 * kLine) uint64_t answered;  // the end of the records that were written
  uint64_t completed;  // all task frames up to this number have ended, the last one with success
  // The flags below change rarely, so both sides usually read this line from their caches.
  alignas(2 * kLine) uint32_t parent_end;
  uint32_t child_end;
  uint32_t parent_wants_space;  // set if the last submit did not fit completely
  uint32_t child_wants_space;   // set if the last answer did not fit
};
static_assert(sizeof(Indices) <= kPage);

constexpr uint64_t whole_lines(uint64_t bytes) {
  return (bytes + kLine - 1) & ~(kLine - 1);
}

// The sizes of both rings in bytes, each a power of two.
struct RingSizes {
  uint64_t frames;
  uint64_t answers;

  // Rounding up to whole lines less than doubles the size of a frame, because a frame has at least
  // one line. A gap is smaller than the largest frame.
  explicit constexpr RingSizes(const pto_connection& connection) {
    const uint64_t largest = whole_lines(connection.queue_bytes) + kLine;
    const uint64_t small_ones = 2 * kLine * connection.queue_frames;
    const uint64_t at_once = small_ones > 2 * largest ? small_ones : 2 * largest;
    frames = std::bit_ceil(at_once + largest);
    answers = std::bit_ceil(kLine * connection.queue_frames + 2 * largest);
  }

  constexpr uint64_t memory_bytes() const { return kPage + frames + answers; }
};

template <class Word>
Word load(const Word& word) {
  return std::atomic_ref<Word>(const_cast<Word&>(word)).load(std::memory_order_seq_cst);
}

template <class Word>
void publish(Word& word, Word value) {
  std::atomic_ref<Word>(word).store(value, std::memory_order_seq_cst);
}

// One ring at its address in this process.
struct Ring {
  std::byte* start;
  uint64_t size;  // a power of two

  std::byte* at(uint64_t index) const { return start + (index & (size - 1)); }
  uint64_t until_end(uint64_t index) const { return size - (index & (size - 1)); }
};

inline Indices* indices_of(const pto_connection& connection) {
  return static_cast<Indices*>(connection.memory);
}

inline Ring frames_of(const pto_connection& connection) {
  return {static_cast<std::byte*>(connection.memory) + kPage, RingSizes(connection).frames};
}

inline Ring answers_of(const pto_connection& connection) {
  const RingSizes sizes(connection);
  return {static_cast<std::byte*>(connection.memory) + kPage + sizes.frames, sizes.answers};
}

// The writing side of a ring. Only one thread at a time may call it.
//
// A head (pto_frame, Record) is one cache line and has a member `kind`.
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

// The reading side of a ring. Only one thread at a time may call it.
//
// The reader does not trust the ring. It copies a head before it checks it, so that a later write
// cannot change the checked value. It rejects a head whose item is longer than the published bytes.
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
