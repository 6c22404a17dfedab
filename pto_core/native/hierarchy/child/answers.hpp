// What a child tells its parent: successes merged, everything else at once.
//
// While successes wait for room the child goes on; other answers wait until they have it, and need
// the GIL. One thread.
#pragma once

#include <cstdint>

#include "child/child_end.hpp"

namespace pto::hierarchy {

// Signal handlers of Python run. An interrupt is dropped; what else they raise is thrown.
void look_for_signals();

class Answers {
 public:
  Answers(ChildEnd& end, const Board& board) : end_(end), board_(board) {}

  // Frame `count` of this connection has succeeded, as have all before it that were not told.
  void succeeded(uint64_t count) {
    newest_ = count;
    ++untold_;
    if (is_due()) flush();
  }

  // Send the successes if there is free space.
  void flush() {
    if (untold_ != 0 && end_.try_answer(success())) untold_ = 0;
  }

  // Tells successes if that is still possible, before the end closes for whatever reason.
  void tell_the_rest() noexcept {
    try {
      flush();
    } catch (const ParentClosed&) {
    } catch (const Refusal&) {
    }
  }

  // Send the successes; wait for free space.
  void flush_surely() {
    if (untold_ != 0) give(success());
    untold_ = 0;
  }

  // Frame `count` has failed or was skipped; tells the successes before it, too.
  void ended(uint64_t count, uint16_t outcome, const void* data, uint32_t bytes) {
    give({count, bytes ? data : nullptr, bytes, PTO_ANSWER_COMPLETED, outcome});
    untold_ = 0;
  }

  void reply(uint64_t number, const void* data, uint32_t bytes) {
    flush_surely();
    give({number, bytes ? data : nullptr, bytes, PTO_ANSWER_REPLY, PTO_OUTCOME_SUCCEEDED});
  }

 private:
  // A parent that is awake learns of so many at once.
  static constexpr uint32_t kMerged = 8;
  // To wake one that sleeps costs two switches of processes, where both share a core: not for each
  // task that takes less. But before the child has worked off half of its window.
  static constexpr uint64_t kWakeEveryNs = 100000;
  static constexpr uint32_t kMergedAsleep = kLargestWindow / 2;

  bool is_due() {
    // In order after the mark on the board: a parent that is about to sleep sees that, or is seen.
    const bool is_asleep = __atomic_load_n(&board_.parent_bell()->sleepers, __ATOMIC_SEQ_CST) != 0;
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
  const Board& board_;
  uint64_t newest_ = 0;    // frame that succeeded; means something while untold_ is not 0
  uint32_t untold_ = 0;    // frames that succeeded since the last answer
  uint64_t woken_ns_ = 0;  // time of the last wake-up of a sleeping parent
};

}  // namespace pto::hierarchy
