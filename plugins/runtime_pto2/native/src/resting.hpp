// Which schedulers have said idle, or are about to, and who wakes them.
//
// The wake protocol, so that no wake-up is lost. Whoever makes work stores it (seq_cst) and then
// looks here; a scheduler that found nothing enters itself here (seq_cst) and then looks for work
// once more. One of the two sees the other. Whoever takes a scheduler out wakes it.
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/abi/topology.h"
#include "pto/engine/context.hpp"

namespace pto::ring_buffer {

class Resting {
 public:
  explicit Resting(engine::Context& context) : context_(context) {}

  // Nobody rests: a backend steps every scheduler at the start.
  void begin(uint32_t threads) {
    all_ = 0;
    for (uint32_t thread = 0; thread < threads; ++thread) all_ |= kRests << (kBits * thread);
    word_.store(0, std::memory_order_relaxed);
  }

  // Scheduler `thread` is about to say idle; `free_types` has bit t set when it has a free core of
  // type t.
  void enter(uint32_t thread, uint32_t free_types) {
    word_.fetch_or((kRests | free_types << 1) << (kBits * thread), std::memory_order_seq_cst);
  }
  void leave(uint32_t thread) {
    if (word_.load(std::memory_order_relaxed) & mine(thread)) {
      word_.fetch_and(~mine(thread), std::memory_order_relaxed);
    }
  }

  // There are `tasks` more ready tasks of `type` for every scheduler. Gives how many it woke.
  uint32_t wake_hungry(uint32_t type, uint32_t tasks) {
    uint32_t hungry = word_.load(std::memory_order_seq_cst) & hungry_bits(type);
    uint32_t woken = 0;
    for (; hungry != 0 && woken < tasks; hungry &= hungry - 1) {
      woken += wake(static_cast<uint32_t>(__builtin_ctz(hungry)) / kBits);
    }
    return woken;
  }

  // Nobody would look at new work now. After work was stored (seq_cst): false means that somebody
  // will find it before it rests.
  bool do_all_rest() const { return (word_.load(std::memory_order_seq_cst) & all_) == all_; }

  // Something that any scheduler can do, and one that is awake will find.
  void wake_if_all_rest() {
    if ((word_.load(std::memory_order_seq_cst) & all_) == all_) wake(0);
  }

  // Whether `thread` rested.
  bool wake(uint32_t thread) {
    if ((word_.load(std::memory_order_seq_cst) & mine(thread)) == 0) return false;
    const uint32_t before = word_.fetch_and(~mine(thread), std::memory_order_seq_cst);
    if ((before & mine(thread)) == 0) return false;
    context_.platform->wake(context_.platform->self, thread);
    return true;
  }

 private:
  // Each scheduler has a byte: it rests; it has a free AIC; it has a free AIV.
  static constexpr uint32_t kBits = 8;
  static constexpr uint32_t kRests = 1;
  static_assert(kBits * PTO_MAX_AICPU_THREADS <= 32, "a byte a scheduler");

  static uint32_t mine(uint32_t thread) { return 0xFFu << (kBits * thread); }
  static uint32_t hungry_bits(uint32_t type) { return 0x02020202u << type; }

  engine::Context& context_;
  uint32_t all_ = 0;
  alignas(64) std::atomic<uint32_t> word_{0};
};

}  // namespace pto::ring_buffer
