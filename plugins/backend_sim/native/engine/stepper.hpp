// Deterministic mode: agents are stepped one at a time, in an order that the seed determines.
//
// The agents are the schedulers, the cores and the orchestrator. A core takes two steps:
// acknowledge, then run and finish. The orchestrator is the thread that called into the runtime.
// Between two steps of wait(), and inside the yield points of the runtime, the stepper chooses
// other agents. It does not step an agent that is inside a step, because that agent holds its lock.
//
// Two threads take turns, and only the thread whose turn it is accesses the run: the caller while
// it submits, and the driver, a thread of the device, from wait() until it returns the turn. Both
// the device's wait() and the platform's wait inside a submit pass the turn to the driver. So a
// kernel that never returns blocks the driver; the caller can abandon it. Only agents that are
// stepped at a yield point of the caller run on the caller's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "activity/activity.hpp"
#include "activity/crash_handler.hpp"
#include "engine/engine.hpp"
#include "engine/random.hpp"
#include "run/run.hpp"

namespace pto::sim {

class Stepper final : public Engine {
 public:
  Stepper(Run& run, ActivityPage& activity, uint64_t seed, int32_t device);
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;
  // Must not run for an abandoned stepper that is stuck.
  ~Stepper() override;

  void start(bool with_library) override;
  void orchestration_done(int32_t result) override;
  // Returns false after the timeout, or earlier if only the caller can continue.
  bool wait(int64_t timeout_ns) override;
  void ended() override {}
  void abandon() override;
  bool stuck() const override;
  void detach_threads() override { driver_.detach(); }

  void wake(uint32_t thread) override;
  void wait_for_word(const uint32_t* word, uint32_t expected) override;
  void notify() override {}
  void yield(uint32_t point) override;
  void trace(uint32_t event, uint64_t a, uint64_t b) override;
  uint64_t trace_hash() const override { return run_.trace().hash(); }

 private:
  // Agents that could be stepped: schedulers by thread, cores by number, lagging cores separately.
  struct Candidates {
    uint32_t schedulers = 0;
    pto_core_mask prompt{};
    pto_core_mask lagging{};
  };

  enum Turn : uint32_t { callers, drivers, unowned };

  void drive() noexcept;
  void take_turn() noexcept;
  void give_turn() noexcept;
  void wait_on_caller() noexcept;
  bool advance() noexcept;
  bool step_one() noexcept;
  Candidates candidates() noexcept;
  void notice_dispatched(Scheduler& scheduler) noexcept;
  void step_scheduler(uint32_t thread) noexcept;
  void step_core(uint32_t core) noexcept;
  void orchestrate() noexcept;

  Run& run_;
  ActivityPage& activity_;
  const uint64_t seed_;
  const CrashNote note_;
  Random random_;
  alignas(64) std::atomic<uint32_t> turn_{callers};  // futex
  std::atomic<bool> lost_{false};
  bool orchestration_pending_ = false;
  pto_core_mask dispatched_{};    // not acknowledged yet
  pto_core_mask acknowledged_{};  // not run yet
  // Cores whose current task is chosen rarely, as if its kernel took long. Without such cores each
  // task would finish soon after its dispatch, and a run would never show an order in which several
  // tasks overtake one.
  pto_core_mask lagging_{};
  std::thread driver_;
};

}  // namespace pto::sim
