// The progress table of a Worker: the counts and outcomes of its children, in memory that the
// parent and all children share.
//
// The task frames of a child are numbered from 1. The numbers continue after a restart. For each
// child the table contains the numbers of started and completed frames, the outcomes of the last
// 1,024 frames, the processes to ring at the next completion, and the frames to skip. With this
// data children can wait for each other without the parent. For a failed frame it contains the wait
// before the task may run again.
//
// Two counts show which frames have begun. `started` is for time limits: the last frame that began.
// `may_have_begun` is for retries after the loss of a child that passes frames on to another host,
// because such a child learns late, or never, which frames have begun there. Other children do not
// use `may_have_begun`.
//
// Invariants: a child that passes no frames on starts a frame only after it has completed all
// frames before; counts never decrease; the outcome of frame n is written before completed becomes
// n. Only the child writes its counts and outcomes; after its exit, the parent writes them in
// lose(). A waiting process sets its bit in `waiters` before its last check, and a completing child
// reads `waiters` afterwards. These accesses are seq_cst; see pto/engine/bell.hpp.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pto/abi/endpoint.h"
#include "pto/abi/trace.h"
#include "pto/engine/bell.hpp"

namespace pto::worker {

constexpr uint64_t kOutcomesKept = 1024;
constexpr uint64_t kLargestWindow = 256;  // maximum number of frames of one child in flight
// Only the outcomes of this many last frames are read, because outcomes of older frames may be
// overwritten at any time.
constexpr uint64_t kOutcomesTrusted = kOutcomesKept - kLargestWindow;

// The wait before a failed task may run again, if it may not run again.
constexpr uint32_t kNeverAgain = UINT32_MAX;

// Why a child exits. The child sets it before it exits.
enum class Ending : uint32_t { kNone = 0, kClosed = 1, kProtocol = 2, kError = 3 };

struct alignas(64) ChildRecord {
  pto_bell bell;  // the doorbell on which this child sleeps

  // Written by the child.
  // the last frame that began or was withdrawn; less than `completed` after other skips
  alignas(64) std::atomic<uint64_t> started;
  std::atomic<uint64_t> completed;
  std::atomic<uint64_t> may_have_begun;  // the last frame that may have begun on another host
  // time of the last start (CLOCK_MONOTONIC); written while wants_clock is set
  std::atomic<uint64_t> started_ns;
  // until this time the silence of a child on another host is no hang (CLOCK_MONOTONIC)
  std::atomic<uint64_t> quiet_until_ns;
  std::atomic<uint64_t> control;  // number of the control frame that runs, plus 1; 0: none
  std::atomic<uint32_t> pid;      // 0 until the loop of the child has begun
  std::atomic<uint32_t> ending;   // a value of Ending

  // Written by siblings and the parent.
  alignas(64) std::atomic<uint64_t> waiters;  // bit i is set: child i, or i + 64, ... must be rung
  std::atomic<uint32_t> wants_clock;
  std::atomic<uint32_t> trace_groups;  // groups of events that the child records; usually 0
  std::atomic<pto_trace_ring*> trace_ring;

  alignas(64) std::atomic<uint64_t> outcomes[kOutcomesKept / 64];  // bit 1: the frame succeeded
  std::atomic<uint64_t> skips[kLargestWindow];  // numbers of frames that must not be started
  // the waits of the last failed frames in milliseconds, written by the child; see complete()
  std::atomic<uint32_t> retry_waits[kLargestWindow];
};

// What a Worker does, for other processes: `pto top` finds the table in the unnamed file of the
// Worker. The fields after `sequence` belong together: it is odd while they change. The parent
// writes them about every 50 ms while it submits or waits, and when it becomes idle, with the GIL.
constexpr uint64_t kStateMagic = 0x454b524f574f5450;  // "PTOWORKE"
constexpr uint32_t kStateVersion = 1;                 // of the layout of the whole table

struct alignas(64) LiveChild {
  char path[64];  // empty: the place has no child
  uint64_t sent;
  uint32_t presence;  // 0: not ready yet, or being restarted; 1: ready; 2: lost
  int32_t line;       // of the submit of the running task
  uint64_t count;     // the frame that has been running since `since_ns`, or 0
  uint64_t since_ns;  // CLOCK_MONOTONIC; may be up to 50 ms late
  int64_t task;
  char callable[80];
  char file[160];
};

struct alignas(64) LiveWorker {
  std::atomic<uint64_t> sequence;
  uint64_t time_ns;  // when the fields were written (CLOCK_MONOTONIC)
  int64_t submitted;
  int64_t finished;
  int64_t failed;
  int64_t poisoned;
  uint64_t waiting;
  uint64_t in_flight;
  char path[64];
};

struct ProgressTableHeader {
  uint32_t children;
  uint32_t version;
  uint64_t magic;
  uint32_t process;  // the parent
  uint32_t reserved[11];
  engine::SpinPlaces spin_places;
  pto_bell parent_bell;  // doorbell on which the parent sleeps, for all children
};

static_assert(sizeof(ProgressTableHeader) == 192);
static_assert(sizeof(LiveWorker) == 128 && sizeof(LiveChild) == 384);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

enum class Requirement { kPending, kMet, kFailed };

// A view of the table: copying it copies a pointer. Any thread may call a method, unless the
// comment of the method states otherwise.
class ProgressTable {
 public:
  static uint64_t bytes_needed(uint32_t children) {
    return state_offset(children) + sizeof(LiveWorker) + children * sizeof(LiveChild);
  }
  // Return the offset of the LiveWorker, which follows the records of the children. After it come
  // the states of the children.
  static uint64_t state_offset(uint32_t children) {
    return sizeof(ProgressTableHeader) + children * sizeof(ChildRecord);
  }

  // Create the table in zeroed memory, aligned to 64, before the first fork. `cores`: the number of
  // cores that the Worker may use.
  static ProgressTable create(void* memory, uint32_t children, uint32_t cores) {
    ProgressTable progress(memory);
    progress.header().children = children;
    progress.header().spin_places.set_limit(cores);
    progress.header().version = kStateVersion;
    progress.header().process = static_cast<uint32_t>(getpid());
    progress.header().magic = kStateMagic;
    return progress;
  }

  // Return a view of an existing table.
  explicit ProgressTable(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  uint32_t children() const { return header().children; }
  pto_bell* parent_bell() const { return &header().parent_bell; }
  engine::SpinPlaces* spin_places() const { return &header().spin_places; }
  ChildRecord& child(int32_t index) const {
    auto* records = reinterpret_cast<ChildRecord*>(memory_ + sizeof(ProgressTableHeader));
    return records[index];
  }
  ProgressTableHeader& header() const { return *reinterpret_cast<ProgressTableHeader*>(memory_); }
  // Return the number that identifies a child as holder of a spin place; see pto/engine/bell.hpp.
  static uint32_t spinner(int32_t child) { return static_cast<uint32_t>(child) + 2; }
  static constexpr uint32_t kParentSpinner = 1;

  // ---- the child's side: only its own thread calls these ----

  // Begin the next frame. Return false if the parent has withdrawn it; then the caller completes it
  // as failed.
  bool start(int32_t child) const {
    ChildRecord& record = this->child(child);
    if (record.wants_clock.load(std::memory_order_relaxed))
      record.started_ns.store(engine::monotonic_ns(), std::memory_order_relaxed);
    const uint64_t count = record.completed.load(std::memory_order_relaxed) + 1;
    record.started.store(count, std::memory_order_seq_cst);  // before the read in is_skipped()
    return !is_skipped(child, count);
  }

  // For a child on another host: record that frames up to `count` will be sent there after this
  // call, so they may begin.
  void pass_on(int32_t child, uint64_t count) const {
    this->child(child).may_have_begun.store(count, std::memory_order_release);
  }

  // For a child on another host: record that frame `count` began at `began_ns` of this host's
  // clock. Calls may skip frames, and a frame may complete without such a call.
  void start_elsewhere(int32_t child, uint64_t count, uint64_t began_ns) const {
    ChildRecord& record = this->child(child);
    record.started_ns.store(began_ns, std::memory_order_relaxed);
    record.started.store(count, std::memory_order_release);
  }

  // For a child on another host, whose frames or results move between the hosts now: record how
  // long it may be silent.
  void permit_silence(int32_t child, uint64_t duration_ns) const {
    const uint64_t until_ns = engine::monotonic_ns() + duration_ns;
    this->child(child).quiet_until_ns.store(until_ns, std::memory_order_relaxed);
  }

  // Complete the next frame: a frame that was started, or a frame that is skipped. If it failed,
  // its task may run again after `retry_wait_ms`, or not at all if that is kNeverAgain.
  void complete(int32_t child, bool succeeded, uint32_t retry_wait_ms = 0) const {
    ChildRecord& record = this->child(child);
    const uint64_t count = record.completed.load(std::memory_order_relaxed) + 1;
    if (!succeeded)
      record.retry_waits[count % kLargestWindow].store(retry_wait_ms, std::memory_order_relaxed);
    write_outcome(record, count, succeeded);
    record.completed.store(count, std::memory_order_seq_cst);
    if (record.waiters.load(std::memory_order_seq_cst) != 0) ring_waiters(record);
  }

  // Return whether frame `count` of `child` may start. It requires that frame `required_count` of
  // `required` succeeds. After any other result than kPending, the result is final.
  Requirement requirement(int32_t child, uint64_t count, int32_t required,
                          uint64_t required_count) const {
    if (is_skipped(child, count)) return Requirement::kFailed;
    const ChildRecord& other = this->child(required);
    if (other.completed.load(std::memory_order_seq_cst) < required_count)
      return Requirement::kPending;
    const bool succeeded = read_outcome(other, required_count);
    // The outcome that was read may have been overwritten if this many more frames have completed.
    // But then the parent has already marked this frame if it must be skipped.
    const uint64_t completed = other.completed.load(std::memory_order_seq_cst);
    if (completed - required_count > kOutcomesTrusted)
      return is_skipped(child, count) ? Requirement::kFailed : Requirement::kMet;
    return succeeded ? Requirement::kMet : Requirement::kFailed;
  }

  // Called when `child` is about to sleep until a frame of `required` completes. The caller checks
  // once more after this call.
  void want_ring(int32_t child, int32_t required) const {
    this->child(required).waiters.fetch_or(bit_of(child), std::memory_order_seq_cst);
  }

  // ---- the parent's side ----

  // Skip frame `count` of `child`. If `started` is smaller after this call, the child certainly
  // skips the frame.
  void skip(int32_t child, uint64_t count) const {
    ChildRecord& record = this->child(child);
    record.skips[count % kLargestWindow].store(count, std::memory_order_seq_cst);
    engine::ring_published(&record.bell);
  }

  // Return the outcome of a completed frame, which must be one of the last kOutcomesTrusted frames.
  bool has_succeeded(int32_t child, uint64_t count) const {
    return read_outcome(this->child(child), count);
  }

  // Return the wait that the child stated for a failed frame whose end was not reported to the
  // engine yet.
  uint32_t retry_wait_ms(int32_t child, uint64_t count) const {
    return this->child(child).retry_waits[count % kLargestWindow].load(std::memory_order_relaxed);
  }

  // Record that the process of the child has ended. Its frames up to `last` count as completed and
  // failed, and no process waits for them. Frames that the child had marked as completed keep their
  // outcome.
  void lose(int32_t child, uint64_t last) const {
    ChildRecord& record = this->child(child);
    const uint64_t completed = record.completed.load(std::memory_order_relaxed);
    for (uint64_t count = completed + 1; count <= last; ++count)
      write_outcome(record, count, false);
    const uint64_t count = std::max(completed, last);
    record.started.store(count, std::memory_order_relaxed);
    record.may_have_begun.store(count, std::memory_order_relaxed);
    record.control.store(0, std::memory_order_relaxed);
    record.pid.store(0, std::memory_order_relaxed);
    record.completed.store(count, std::memory_order_seq_cst);
    ring_waiters(record);
    spin_places()->give_back_all(spinner(child));
  }

 private:
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

inline LiveWorker& state_of(const ProgressTable& table) {
  auto* memory = reinterpret_cast<std::byte*>(&table.header());
  return *reinterpret_cast<LiveWorker*>(memory + ProgressTable::state_offset(table.children()));
}
inline LiveChild& state_of(const ProgressTable& table, int32_t child) {
  return reinterpret_cast<LiveChild*>(&state_of(table) + 1)[child];
}

}  // namespace pto::worker
