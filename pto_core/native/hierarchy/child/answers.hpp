// Sends the answers of a child to its parent. Successes are merged; other answers are sent at once.
//
// If there is no space in the queue for merged successes, the child sends them later and continues.
// Other answers block until there is space, and need the GIL. Only one thread uses this object.
#pragma once

#include <cstdint>

#include "child/child_end.hpp"

namespace pto::hierarchy {

// Run Python signal handlers. A KeyboardInterrupt is dropped; any other exception is thrown.
void run_signal_handlers();

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

}  // namespace pto::hierarchy
