// The memory layout of one connection.
//
//   page 0   indices, each in two cache lines that only one side writes; a line of rare flags
//   frames   ring, parent to child: a pto_frame and its data, rounded up to whole lines
//   answers  ring, child to parent: a Record and its data, rounded up to whole lines
//
// Indices count bytes since the connection was opened and never decrease. An index modulo the size
// of its ring is an offset in that ring. An item never wraps: if it does not fit before the end of
// the ring, a head of kind kGap fills the rest and the item starts at offset 0. Each ring has space
// for one such gap.
//
// All bytes are zero when the connection is opened. A side stores an index after the bytes that the
// index covers, with seq_cst. This order lets pto/engine/bell.hpp skip its own write.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "pto/abi/endpoint.h"

namespace pto::shm {

constexpr uint64_t kLine = 64;
constexpr uint64_t kPage = 4096;
constexpr uint16_t kGap = 0xFFFF;  // kind of a head after which the reader continues at offset 0

// An answer that is stored separately. Consecutive successes need no record: `Indices::completed`
// counts them.
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
  alignas(2 * kLine) uint64_t polled;  // records before this index may be overwritten
  // Written by the child.
  alignas(2 * kLine) uint64_t taken;
  alignas(2 * kLine) uint64_t answered;  // end of the records
  uint64_t completed;  // all task frames up to this number have ended, the last one with success
  // These flags change rarely, so reads of this line stay in the cache of each side.
  alignas(2 * kLine) uint32_t parent_end;
  uint32_t child_end;
  uint32_t parent_wants_space;  // the last submit did not fit completely
  uint32_t child_wants_space;   // the last answer did not fit
};
static_assert(sizeof(Indices) <= kPage);

constexpr uint64_t whole_lines(uint64_t bytes) {
  return (bytes + kLine - 1) & ~(kLine - 1);
}

// The sizes of both rings in bytes, each a power of two.
struct RingSizes {
  uint64_t frames;
  uint64_t answers;

  // A frame has at least one line, so rounding up to whole lines less than doubles its size. A gap
  // is smaller than the largest frame.
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

// One ring, as either side addresses it.
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

}  // namespace pto::shm
