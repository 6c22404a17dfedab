// Deterministic mode: agents are stepped one at a time, in an order that the seed determines.
//
// The agents are the schedulers, the cores and the orchestrator. A core takes two steps:
// acknowledge, then run and finish. Kernels that wait for each other run in one step, each on its
// own thread. The orchestrator is the thread that called into the runtime.
// Inside wait(), and at the yield points of the runtime, the stepper steps other agents. It does
// not step an agent that is already inside a step, because that agent holds its lock.
//
// Two threads take turns: the caller while it submits, and the driver, a thread of the device. Only
// the thread that has the turn accesses the run. The device's wait() and the platform's wait inside
// a submit pass the turn to the driver, which returns it when it cannot continue. So a kernel that
// never returns blocks the driver, and the caller can abandon the run. Only an agent that is
// stepped at a yield point of the caller runs on the caller's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "activity.hpp"
#include "engine/engine.hpp"
#include "engine/kernel_threads.hpp"
#include "run/run.hpp"

namespace pto::sim {

// A small generator whose numbers depend on the seed only, on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}

  // splitmix64
  uint64_t next() noexcept {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  uint32_t below(uint32_t limit) noexcept {
    return static_cast<uint32_t>((next() >> 32) * limit >> 32);
  }

 private:
  uint64_t state_;
};

class Stepper final : public Engine {
 public:
  Stepper(SimRun& run, ActivityPage& activity, uint64_t seed, int32_t device);
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;
  // Do not destroy an abandoned stepper that is stuck.
  ~Stepper() override;

  void start(bool with_library) override;
  void orchestration_done(int32_t result) override;
  // Returns false after the timeout, or earlier if only the caller can continue.
  bool wait(int64_t timeout_ns) override;
  void ended() override {}
  void abandon() override;
  bool stuck() const override;
  void detach_threads() override {
    driver_.detach();
    threads_.detach();
  }

  void wake(uint32_t thread) override;
  void wait_for_word(const uint32_t* word, uint32_t expected) override;
  void notify() override {}
  void yield(uint32_t point) override;
  void order(uint32_t event, uint64_t a, uint64_t b) override;
  uint64_t trace_hash() const override { return run_.tracer().order().hash(); }

 private:
  // The agents that can be stepped: schedulers (a bit for each thread), and cores. Lagging cores
  // are chosen less often.
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

  SimRun& run_;
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
  // task would finish soon after its dispatch, and no run would test that several tasks overtake
  // another task.
  pto_core_mask lagging_{};
  // For a core whose kernel waits for others: the cores that run at the same time, in one step.
  pto_core_mask group_[PTO_MAX_CORES] = {};
  KernelThreads threads_;
  std::thread driver_;
};

}  // namespace pto::sim
