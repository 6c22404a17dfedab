// The set of schedulers that are idle or about to become idle.
//
// The wake protocol loses no wake-up. A thread that creates work stores the work (seq_cst) and then
// reads this word. A scheduler without work enters itself here (seq_cst) and then checks for work
// once more. So either the thread sees the scheduler here, or the scheduler sees the work. The
// thread that removes a scheduler from this word wakes it.
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/abi/topology.h"
#include "pto/engine/context.hpp"

namespace pto::ring_buffer {

class Resting {
 public:
  explicit Resting(engine::Context& context) : context_(context) {}

  // At the start of a run no scheduler is idle, because the backend steps every scheduler at least
  // once.
  void begin(uint32_t threads) {
    all_ = 0;
    for (uint32_t thread = 0; thread < threads; ++thread) all_ |= kRests << (kBits * thread);
    word_.store(0, std::memory_order_relaxed);
  }

  // Called when scheduler `thread` is about to become idle. Bit t of `free_types` is set if it has
  // a free core of type t.
  void enter(uint32_t thread, uint32_t free_types) {
    word_.fetch_or((kRests | free_types << 1) << (kBits * thread), std::memory_order_seq_cst);
  }
  void leave(uint32_t thread) {
    if (word_.load(std::memory_order_relaxed) & mine(thread)) {
      word_.fetch_and(~mine(thread), std::memory_order_relaxed);
    }
  }

  // Wake idle schedulers that have a free core of `type`, at most `tasks` of them, because that
  // many more tasks are ready. Return the number of woken schedulers.
  uint32_t wake_hungry(uint32_t type, uint32_t tasks) {
    uint32_t hungry = word_.load(std::memory_order_seq_cst) & hungry_bits(type);
    uint32_t woken = 0;
    for (; hungry != 0 && woken < tasks; hungry &= hungry - 1) {
      woken += wake(static_cast<uint32_t>(__builtin_ctz(hungry)) / kBits);
    }
    return woken;
  }

  // Return whether all schedulers are idle, so that no scheduler would find new work. Call this
  // after the work was stored (seq_cst). If the result is false, a scheduler will find the work
  // before it becomes idle.
  bool do_all_rest() const { return (word_.load(std::memory_order_seq_cst) & all_) == all_; }

  // Wake a scheduler if all are idle. For work that any scheduler can do: a scheduler that is awake
  // finds it without a wake-up.
  void wake_if_all_rest() {
    if ((word_.load(std::memory_order_seq_cst) & all_) == all_) wake(0);
  }

  // Remove `thread` from the set and wake it. Return whether it was in the set.
  bool wake(uint32_t thread) {
    if ((word_.load(std::memory_order_seq_cst) & mine(thread)) == 0) return false;
    const uint32_t before = word_.fetch_and(~mine(thread), std::memory_order_seq_cst);
    if ((before & mine(thread)) == 0) return false;
    context_.platform->wake(context_.platform->self, thread);
    return true;
  }

 private:
  // Each scheduler has a byte with three bits: the scheduler is idle; it has a free AIC core; it
  // has a free AIV core.
  static constexpr uint32_t kBits = 8;
  static constexpr uint32_t kRests = 1;
  static_assert(kBits * PTO_MAX_AICPU_THREADS <= 32, "the word needs a byte for each scheduler");

  static uint32_t mine(uint32_t thread) { return 0xFFu << (kBits * thread); }
  static uint32_t hungry_bits(uint32_t type) { return 0x02020202u << type; }

  engine::Context& context_;
  uint32_t all_ = 0;
  alignas(64) std::atomic<uint32_t> word_{0};
};

}  // namespace pto::ring_buffer
