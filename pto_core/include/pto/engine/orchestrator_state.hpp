// The state of the orchestrator, as other threads see it: running, waiting for a word to change, or
// done.
#pragma once

#include <atomic>
#include <cstdint>

namespace pto::engine {

class alignas(64) OrchestratorState {
 public:
  enum State : uint64_t { running = 0, waiting = 1, done = 2 };

  void reset() noexcept { move(running); }

  // Called by the orchestrator's thread only.
  void begin_wait(const uint32_t* word, uint32_t expected) noexcept {
    word_.store(word, std::memory_order_relaxed);
    expected_.store(expected, std::memory_order_relaxed);
    move(waiting);
  }
  // Returns when no other thread examines the wait any more: the word may be on the orchestrator's
  // stack. Calls `pause` until then.
  template <class Pause>
  void end_wait(Pause&& pause) noexcept {
    move(running);
    while (examiners_.load(std::memory_order_seq_cst) != 0) pause();
  }
  void finish() noexcept { move(done); }

  State state() const noexcept { return State(snapshot() & 3); }
  // Two equal snapshots prove that the state did not change in between, not even temporarily.
  uint64_t snapshot() const noexcept { return state_.load(std::memory_order_seq_cst); }

  // Called by another thread. Returns true if the state is still that of `snapshot`. The
  // orchestrator then stays in the wait until leave_wait(), so the data of the wait stays valid.
  // Returns false otherwise; do not call leave_wait() then.
  bool enter_wait(uint64_t snapshot) noexcept {
    examiners_.fetch_add(1, std::memory_order_seq_cst);
    if (this->snapshot() == snapshot) return true;
    leave_wait();
    return false;
  }
  void leave_wait() noexcept { examiners_.fetch_sub(1, std::memory_order_seq_cst); }

  // Whether the word has changed, so that the wait can end. Call it only while the state is known
  // to be `waiting`.
  bool satisfied() const noexcept {
    return changed(word_.load(std::memory_order_relaxed),
                   expected_.load(std::memory_order_relaxed));
  }
  // Whether the orchestrator cannot continue by itself.
  bool blocked() const noexcept {
    const State now = state();
    return now == done || (now == waiting && !satisfied());
  }

  static bool changed(const uint32_t* word, uint32_t expected) noexcept {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) != expected;
  }

 private:
  void move(State state) noexcept {
    const uint64_t generation = state_.load(std::memory_order_relaxed) >> 2;
    state_.store((generation + 1) << 2 | state, std::memory_order_seq_cst);
  }

  std::atomic<uint64_t> state_{done};  // generation << 2 | State
  std::atomic<const uint32_t*> word_{nullptr};
  std::atomic<uint32_t> expected_{0};
  std::atomic<uint32_t> examiners_{0};
};

}  // namespace pto::engine
