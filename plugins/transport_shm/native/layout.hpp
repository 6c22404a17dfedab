// Where things lie in the memory of one connection.
//
//   page 0   indices, each in a pair of cache lines that one side alone writes; a quiet line
//   frames   ring, parent to child: a pto_frame and its data, rounded up to whole lines
//   answers  ring, child to parent: a Record and its data, rounded up to whole lines
//
// Indices count bytes since the connection was opened and never fall; modulo its size they are
// places in a ring. What does not fit before the end of a ring starts at its beginning, after a
// head that says so. Rings are large enough for one such gap.
//
// Everything is zero when the connection is opened. An index is stored after what it covers, with
// seq_cst: then pto/engine/bell.hpp may skip its own write.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "pto/abi/endpoint.h"

namespace pto::shm {

constexpr uint64_t kLine = 64;
constexpr uint64_t kPage = 4096;
constexpr uint16_t kGap = 0xFFFF;  // as a kind: go on at the beginning of the ring

// Answers that cannot be merged; successes in a row are the number `Indices::completed`.
struct Record {
  uint64_t number;
  uint64_t succeeded;  // what `completed` was when this was given
  uint32_t bytes;
  uint16_t kind;
  uint16_t outcome;
  uint8_t unused[kLine - 24];
};
static_assert(sizeof(Record) == kLine);

enum class End : uint32_t { kUsed = 0, kClosed = 1 };

// Two lines each: processors fetch lines in pairs.
struct alignas(2 * kLine) Indices {
  // Written by the parent.
  alignas(2 * kLine) uint64_t submitted;
  alignas(2 * kLine) uint64_t polled;  // records whose room can be used again
  // Written by the child.
  alignas(2 * kLine) uint64_t taken;
  alignas(2 * kLine) uint64_t given;  // records
  uint64_t completed;                 // task frames up to here have ended, the last well
  // Seldom written, so both sides can look at them for nothing.
  alignas(2 * kLine) uint32_t parent_end;
  uint32_t child_end;
  uint32_t parent_wants_room;  // a submit came back with less than it was given
  uint32_t child_wants_room;   // an answer was refused
};
static_assert(sizeof(Indices) <= kPage);

constexpr uint64_t whole_lines(uint64_t bytes) {
  return (bytes + kLine - 1) & ~(kLine - 1);
}

// A power of two each.
struct RingSizes {
  uint64_t frames;
  uint64_t answers;

  // A frame takes less than twice its bytes, as it has at least a line; a gap is smaller than the
  // largest frame.
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

// A ring as either side sees it.
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
