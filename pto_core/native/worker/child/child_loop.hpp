// The loop of a child process. It receives frames, runs their callables, updates the progress table
// and answers.
//
// The thread holds the GIL except while it waits. Any exception of a callable, even SystemExit and
// KeyboardInterrupt, fails only its task. The loop ignores Ctrl-C during a wait: the parent
// receives the signal too, and decides how to react.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "arguments/task_args.hpp"
#include "child/child_end.hpp"
#include "progress_table.hpp"
#include "pto/abi/endpoint.h"
#include "trace/child_ring.hpp"

namespace pto::worker {

namespace nb = nanobind;

// Run Python signal handlers. A KeyboardInterrupt is dropped; any other exception is thrown.
void run_signal_handlers();

// Sends the answers of a child to its parent. Successes are merged; other answers are sent at once.
//
// If there is no space in the queue for merged successes, the child sends them later and continues.
// Other answers block until there is space, and need the GIL. Only one thread uses this object.
class Answers {
 public:
  Answers(ChildEnd& end, const ProgressTable& progress) : end_(end), progress_(progress) {}

  // Record that frame `count` of this connection has succeeded, like all unreported frames before
  // it.
  void succeeded(uint64_t count) {
    newest_ = count;
    ++unsent_;
    if (is_due()) flush();
  }

  // Send the successes if there is free space.
  void flush() {
    if (unsent_ != 0 && end_.try_answer(success())) unsent_ = 0;
  }

  // Send the successes if the connection still permits it. Called before the end closes.
  void flush_at_exit() noexcept {
    try {
      flush();
    } catch (const ParentClosed&) {
    } catch (const Refusal&) {
    }
  }

  // Send the successes. Wait until there is free space.
  void flush_blocking() {
    if (unsent_ != 0) send(success());
    unsent_ = 0;
  }

  // Report that frame `count` has failed or was skipped, after the successes before it.
  void ended(uint64_t count, uint16_t outcome, const void* data, uint32_t bytes) {
    send({count, bytes ? data : nullptr, bytes, PTO_ANSWER_COMPLETED, outcome});
    unsent_ = 0;
  }

  void reply(uint64_t number, const void* data, uint32_t bytes) {
    flush_blocking();
    send({number, bytes ? data : nullptr, bytes, PTO_ANSWER_REPLY, PTO_OUTCOME_SUCCEEDED});
  }

 private:
  // The number of successes that are merged into one answer while the parent is awake.
  static constexpr uint32_t kMerged = 8;
  // Waking a sleeping parent costs two process switches if both share a core. So a short task does
  // not wake the parent; the child wakes it at the latest when it has processed half of its window.
  static constexpr uint64_t kWakeEveryNs = 100000;
  static constexpr uint32_t kMergedAsleep = kLargestWindow / 2;

  bool is_due() {
    // This read comes after the write to the progress table. So either a parent that is about to
    // sleep sees the write, or this thread sees that the parent sleeps.
    const bool is_asleep =
        __atomic_load_n(&progress_.parent_bell()->sleepers, __ATOMIC_SEQ_CST) != 0;
    if (!is_asleep) return unsent_ >= kMerged;
    const uint64_t now = engine::monotonic_ns();
    if (unsent_ < kMergedAsleep && now - woken_ns_ < kWakeEveryNs) return false;
    woken_ns_ = now;
    return true;
  }

  pto_answer success() const {
    return {newest_, nullptr, 0, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED};
  }

  void send(const pto_answer& answer);

  ChildEnd& end_;
  const ProgressTable& progress_;
  uint64_t newest_ = 0;    // the last frame that succeeded; valid while unsent_ is not 0
  uint32_t unsent_ = 0;    // number of frames that succeeded since the last answer
  uint64_t woken_ns_ = 0;  // time of the last wake-up of a sleeping parent
};

using Digest = std::array<uint8_t, PTO_DIGEST_BYTES>;

struct KnownCallable {
  nb::object callable;
  bool takes_arguments = true;  // false if the callable is called without arguments
};

// The callables of a child, by digest. Used with the GIL held.
class CallableTable {
 public:
  // Add an entry. Replace an entry with the same digest.
  void add(const Digest& digest, KnownCallable known) {
    last_ = nullptr;
    callables_[digest] = std::move(known);
  }

  // Remove an entry. Return false if there is none.
  bool forget(const Digest& digest) {
    last_ = nullptr;
    return callables_.erase(digest) != 0;
  }

  // Return the entry, or null if there is none. The pointer is valid until the next add() or
  // forget(). The entry of the last call is checked first, because most calls use the same entry
  // again.
  const KnownCallable* find(const uint8_t* digest) {
    if (last_ && std::memcmp(last_->first.data(), digest, PTO_DIGEST_BYTES) == 0)
      return &last_->second;
    Digest key;
    std::memcpy(key.data(), digest, key.size());
    const auto found = callables_.find(key);
    if (found == callables_.end()) return nullptr;
    last_ = &*found;
    return &last_->second;
  }

 private:
  // A digest is uniformly distributed, so its first bytes are a good hash.
  struct Hash {
    size_t operator()(const Digest& digest) const {
      size_t first = 0;
      std::memcpy(&first, digest.data(), sizeof first);
      return first;
    }
  };

  using Map = std::unordered_map<Digest, KnownCallable, Hash>;
  Map callables_;
  const Map::value_type* last_ = nullptr;
};

class ChildLoop {
 public:
  // `largest_answer`: the maximum number of data bytes in one answer.
  ChildLoop(const ProgressTable& progress, int32_t child, std::unique_ptr<ChildEnd> end,
            uint32_t largest_answer);
  ~ChildLoop();

  void add(const Digest& digest, KnownCallable known) { table_.add(digest, std::move(known)); }
  bool forget(const Digest& digest) { return table_.forget(digest); }
  uint32_t largest_answer() const { return largest_answer_; }

  // Run until stop() is called (returns true), or until the parent closes (returns false). Call it
  // once. It closes the end, even after an exception. `control(bytes) -> bytes` answers control
  // frames; its exceptions end the loop. `invoke(callable, view or None, config)` runs tasks. If
  // `invoke` is None, callables are called directly, with a view of the arguments, which may be
  // empty. A callable that accepts no arguments is called without a view.
  bool run(nb::object control, nb::object invoke);
  // End the loop after the current frame. Called inside `control`.
  void stop() { is_stopping_ = true; }

 private:
  static constexpr int32_t kBatch = 64;

  void serve();
  void wait_for_frames();
  void end_idle();
  void handle(const pto_frame_view& view);
  void run_control(const pto_frame_view& view);
  void run_task(const pto_frame_view& view);
  Requirement requirement_of(const pto_frame& frame, uint64_t count);
  void check_requirement(const pto_frame& frame) const;
  bool call(const pto_frame_view& view);
  PyObject* point_view_at(const pto_frame_view& view);
  void release_view();
  nb::object describe_failure() const;
  uint32_t retry_wait_ms() const;
  void leave(Ending ending);

  const ProgressTable progress_;
  const int32_t child_;
  std::unique_ptr<ChildEnd> end_;
  const uint32_t largest_answer_;
  Answers answers_;
  ChildTrace trace_;
  CallableTable table_;
  uint64_t base_ = 0;   // number of frames that the progress table counted before this connection
  uint64_t count_ = 0;  // number of task frames of this connection that have begun
  uint64_t idle_since_ = 0;  // trace clock at the begin of a traced wait for frames; 0: none
  nb::object control_;
  nb::object invoke_;             // invalid if callables are called directly
  nb::object failure_type_;       // pto_core.worker.failures.Failure
  nb::object take_retry_wait_;    // pto_core.worker.retries.take_wait_ms
  TaskArgsView* view_ = nullptr;  // the view of the last task; reused if no callable has kept it
  bool is_stopping_ = false;
};

}  // namespace pto::worker
