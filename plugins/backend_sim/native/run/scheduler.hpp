// One scheduler thread of the simulated AICPU, as an agent that any thread of the pool may step.
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/abi/topology.h"
#include "waiting/futex.hpp"

namespace pto::sim {

struct alignas(64) Scheduler {
  // The lock of the scheduler. It is held during each step, and by the orchestrator if both share
  // one AICPU thread.
  std::atomic<uint32_t> locked{0};
  // Guarded by `locked`:
  bool done = false;          // returned PTO_STEP_DONE; not stepped again in this run
  pto_core_mask in_flight{};  // dispatched and not yet reported by poll
  // dispatched, but not yet taken by the thread that steps the scheduler
  pto_core_mask dispatched{};
  // whether new work has arrived since the last step began
  alignas(64) std::atomic<uint32_t> wake{0};

  bool try_lock() noexcept {
    return locked.load(std::memory_order_relaxed) == 0 &&
           locked.exchange(1, std::memory_order_acquire) == 0;
  }
  void unlock() noexcept { locked.store(0, std::memory_order_release); }

  // Spin until the lock is taken. The holder releases it soon, because its steps are short.
  void lock() noexcept {
    for (Backoff backoff; !try_lock();) {
      if (!backoff.again()) backoff.reset();
    }
  }

  // Clears the wake flag before a step, so that the step sees every change that was made before the
  // flag was set.
  void take_wake() noexcept {
    if (wake.load(std::memory_order_relaxed) != 0) wake.exchange(0, std::memory_order_acq_rel);
  }

  void reset() noexcept {
    locked.store(0, std::memory_order_relaxed);
    done = false;
    in_flight = {};
    dispatched = {};
    wake.store(0, std::memory_order_relaxed);
  }
};

}  // namespace pto::sim
