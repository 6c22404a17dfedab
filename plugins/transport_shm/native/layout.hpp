// The memory layout of one connection.
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

}  // namespace pto::shm
