// Sends the answers of a child to its parent. Successes are merged; other answers are sent at once.
//
// If there is no space in the queue for merged successes, the child sends them later and continues.
// Other answers block until there is space, and need the GIL. Only one thread uses this object.
#pragma once

#include <cstdint>

#include "child/child_end.hpp"

namespace pto::hierarchy {

// Run Python signal handlers. A KeyboardInterrupt is dropped; any other exception is thrown.
void look_for_signals();

class Answers {
 public:
  Answers(ChildEnd& end, const ProgressTable& progress) : end_(end), progress_(progress) {}

  // Frame `count` of this connection has succeeded, and so have all unreported frames before it.
  void succeeded(uint64_t count) {
    newest_ = count;
    ++untold_;
    if (is_due()) flush();
  }

  // Send the successes if there is free space.
  void flush() {
    if (untold_ != 0 && end_.try_answer(success())) untold_ = 0;
  }

  // Send the successes, if that is still possible, before the end closes.
  void tell_the_rest() noexcept {
    try {
      flush();
    } catch (const ParentClosed&) {
    } catch (const Refusal&) {
    }
  }

  // Send the successes. Wait until there is free space.
  void flush_surely() {
    if (untold_ != 0) give(success());
    untold_ = 0;
  }

  // Frame `count` has failed or was skipped. This sends the successes before it first.
  void ended(uint64_t count, uint16_t outcome, const void* data, uint32_t bytes) {
    give({count, bytes ? data : nullptr, bytes, PTO_ANSWER_COMPLETED, outcome});
    untold_ = 0;
  }

  void reply(uint64_t number, const void* data, uint32_t bytes) {
    flush_surely();
    give({number, bytes ? data : nullptr, bytes, PTO_ANSWER_REPLY, PTO_OUTCOME_SUCCEEDED});
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
    if (!is_asleep) return untold_ >= kMerged;
    const uint64_t now = engine::monotonic_ns();
    if (untold_ < kMergedAsleep && now - woken_ns_ < kWakeEveryNs) return false;
    woken_ns_ = now;
    return true;
  }

  pto_answer success() const {
    return {newest_, nullptr, 0, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED};
  }

  void give(const pto_answer& answer);

  ChildEnd& end_;
  const ProgressTable& progress_;
  uint64_t newest_ = 0;    // the last frame that succeeded; valid while untold_ is not 0
  uint32_t untold_ = 0;    // frames that succeeded since the last answer
  uint64_t woken_ns_ = 0;  // time of the last wake-up of a sleeping parent
};

}  // namespace pto::hierarchy
