// The board of a Worker: what its children have done, in memory that all of them and the parent
// see.
//
// A child's task frames are numbered from 1 for ever, restarts included. Of each child the board
// holds how many have started and completed, how the last 1,024 ended, who is to be rung when the
// next one completes, and which frames the parent wants skipped. So children wait for each other
// without a trip to the parent.
//
// Invariants: started - completed is 0 or 1; counts never fall; the outcome of frame n is written
// before completed becomes n. Only the child writes its counts and outcomes, until it is gone: then
// the parent does, in lose(). Whoever waits has set its bit in `waiters` before it looks a last
// time, whoever completes looks at `waiters` afterwards: all seq_cst, see pto/engine/bell.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pto/abi/endpoint.h"
#include "pto/engine/bell.hpp"

namespace pto::hierarchy {

constexpr uint64_t kOutcomesKept = 1024;
constexpr uint64_t kLargestWindow = 256;  // frames of one child in flight
// An outcome is read only while its place cannot be taken by a later frame.
constexpr uint64_t kOutcomesTrusted = kOutcomesKept - kLargestWindow;

// How a child says that it goes, before it does.
enum class Ending : uint32_t { kNone = 0, kClosed = 1, kProtocol = 2, kError = 3 };

struct alignas(64) ChildRecord {
  pto_bell bell;  // what this child sleeps on

  // Written by the child.
  alignas(64) std::atomic<uint64_t> started;
  std::atomic<uint64_t> completed;
  std::atomic<uint64_t> started_ns;  // CLOCK_MONOTONIC of the last start, while wants_clock is set
  std::atomic<uint64_t> control;     // number + 1 of the control frame that it works on; 0: none
  std::atomic<uint32_t> pid;         // 0 until it has begun
  std::atomic<uint32_t> ending;      // an Ending

  // Written by siblings and the parent.
  alignas(64) std::atomic<uint64_t> waiters;  // bit i: child i, or i + 64, ... wants to be rung
  std::atomic<uint32_t> wants_clock;

  alignas(64) std::atomic<uint64_t> outcomes[kOutcomesKept / 64];  // bit 1: succeeded
  std::atomic<uint64_t> skips[kLargestWindow];  // number of a frame that is not to start
};

struct BoardHeader {
  uint32_t children;
  uint32_t reserved[15];
  engine::SpinPlaces spin_places;
  pto_bell parent_bell;  // what the parent sleeps on, for all children
};

static_assert(sizeof(BoardHeader) == 192);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

enum class Requirement { kPending, kMet, kFailed };

// A view: copying it copies a pointer. Any thread, unless a method says otherwise.
class Board {
 public:
  static uint64_t bytes_needed(uint32_t children) {
    return sizeof(BoardHeader) + children * sizeof(ChildRecord);
  }

  // In zeroed memory, aligned to 64; before the first fork. `cores`: that the Worker may use.
  static Board create(void* memory, uint32_t children, uint32_t cores) {
    Board board(memory);
    board.header().children = children;
    board.header().spin_places.set_limit(cores);
    return board;
  }

  // Of a board that was created.
  explicit Board(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  uint32_t children() const { return header().children; }
  pto_bell* parent_bell() const { return &header().parent_bell; }
  engine::SpinPlaces* spin_places() const { return &header().spin_places; }
  ChildRecord& child(int32_t index) const {
    auto* records = reinterpret_cast<ChildRecord*>(memory_ + sizeof(BoardHeader));
    return records[index];
  }
  // Whom a place to spin belongs to.
  static uint32_t spinner(int32_t child) { return static_cast<uint32_t>(child) + 2; }
  static constexpr uint32_t kParentSpinner = 1;

  // ---- the child's side: its own thread ----

  void start(int32_t child) const {
    ChildRecord& record = this->child(child);
    if (record.wants_clock.load(std::memory_order_relaxed))
      record.started_ns.store(engine::monotonic_ns(), std::memory_order_relaxed);
    const uint64_t count = record.started.load(std::memory_order_relaxed) + 1;
    record.started.store(count, std::memory_order_release);
  }

  // The frame that was started, or one that is skipped without a start.
  void complete(int32_t child, bool succeeded) const {
    ChildRecord& record = this->child(child);
    const uint64_t count = record.completed.load(std::memory_order_relaxed) + 1;
    write_outcome(record, count, succeeded);
    if (record.started.load(std::memory_order_relaxed) < count)
      record.started.store(count, std::memory_order_relaxed);
    record.completed.store(count, std::memory_order_seq_cst);
    if (record.waiters.load(std::memory_order_seq_cst) != 0) ring_waiters(record);
  }

  // May frame `count` of `child` start, if it needs that frame `required_count` of `required`
  // succeeded? Once it is not kPending it does not become so again.
  Requirement requirement(int32_t child, uint64_t count, int32_t required,
                          uint64_t required_count) const {
    if (is_skipped(child, count)) return Requirement::kFailed;
    const ChildRecord& other = this->child(required);
    if (other.completed.load(std::memory_order_seq_cst) < required_count)
      return Requirement::kPending;
    const bool succeeded = read_outcome(other, required_count);
    // What has run so far ahead was let to by a parent that had set the skip before.
    const uint64_t completed = other.completed.load(std::memory_order_seq_cst);
    if (completed - required_count > kOutcomesTrusted)
      return is_skipped(child, count) ? Requirement::kFailed : Requirement::kMet;
    return succeeded ? Requirement::kMet : Requirement::kFailed;
  }

  // `child` is about to sleep until a frame of `required` completes; it looks once more after this.
  void want_ring(int32_t child, int32_t required) const {
    this->child(required).waiters.fetch_or(bit_of(child), std::memory_order_seq_cst);
  }

  // ---- the parent's side ----

  // Frame `count` of `child` is not to start, unless it already has. Frames without a requirement
  // do not look.
  void skip(int32_t child, uint64_t count) const {
    ChildRecord& record = this->child(child);
    record.skips[count % kLargestWindow].store(count, std::memory_order_seq_cst);
    engine::ring_published(&record.bell);
  }

  // How a completed frame ended; only of the last kOutcomesTrusted.
  bool has_succeeded(int32_t child, uint64_t count) const {
    return read_outcome(this->child(child), count);
  }

  // The child's process is gone: its frames up to `last` count as completed and failed, and nobody
  // waits for it any more. What it itself had marked as completed stays as it is.
  void lose(int32_t child, uint64_t last) const {
    ChildRecord& record = this->child(child);
    const uint64_t completed = record.completed.load(std::memory_order_relaxed);
    for (uint64_t count = completed + 1; count <= last; ++count)
      write_outcome(record, count, false);
    const uint64_t count = std::max(completed, last);
    record.started.store(count, std::memory_order_relaxed);
    record.control.store(0, std::memory_order_relaxed);
    record.pid.store(0, std::memory_order_relaxed);
    record.completed.store(count, std::memory_order_seq_cst);
    ring_waiters(record);
    spin_places()->give_back_all(spinner(child));
  }

 private:
  BoardHeader& header() const { return *reinterpret_cast<BoardHeader*>(memory_); }
  static uint64_t bit_of(int32_t child) { return uint64_t{1} << (child % 64); }

  bool is_skipped(int32_t child, uint64_t count) const {
    const ChildRecord& record = this->child(child);
    return record.skips[count % kLargestWindow].load(std::memory_order_seq_cst) == count;
  }

  static void write_outcome(ChildRecord& record, uint64_t count, bool succeeded) {
    std::atomic<uint64_t>& word = record.outcomes[count % kOutcomesKept / 64];
    const uint64_t bit = uint64_t{1} << (count % 64);
    const uint64_t before = word.load(std::memory_order_relaxed);
    word.store(succeeded ? before | bit : before & ~bit, std::memory_order_release);
  }

  static bool read_outcome(const ChildRecord& record, uint64_t count) {
    const uint64_t word =
        record.outcomes[count % kOutcomesKept / 64].load(std::memory_order_acquire);
    return (word >> (count % 64) & 1) != 0;
  }

  void ring_waiters(ChildRecord& record) const {
    const uint64_t bits = record.waiters.exchange(0, std::memory_order_seq_cst);
    const auto count = static_cast<int32_t>(children());
    for (int32_t i = 0; bits != 0 && i < count; ++i)
      if (bits & bit_of(i)) engine::ring(&child(i).bell);
  }

  std::byte* memory_;
};

}  // namespace pto::hierarchy
