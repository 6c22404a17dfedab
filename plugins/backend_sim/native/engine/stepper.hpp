// Deterministic mode: one thread, the caller's, steps all agents in an order that the seed decides.
//
// Agents are the schedulers, the cores (a core takes two steps: acknowledge, then run and finish)
// and the orchestrator, which is whoever called into the runtime. Between two steps of wait(), and
// inside the runtime's yield points, other agents are chosen. An agent inside a step is not
// stepped again: its lock is held.
//
// All methods but ended() and abandon() belong to the one thread that drives the device.
#pragma once

#include <cstdint>

#include "activity/activity.hpp"
#include "activity/crash_handler.hpp"
#include "engine/engine.hpp"
#include "engine/random.hpp"
#include "run/run.hpp"

namespace pto::sim {

class Stepper final : public Engine {
 public:
  Stepper(Run& run, ActivityPage& activity, uint64_t seed, int32_t device) noexcept;

  void start(bool with_library) override;
  void orchestration_done(int32_t result) override;
  // With an orchestration library the whole orchestration runs in the first call, whatever the
  // timeout.
  bool wait(int64_t timeout_ns) override;
  void ended() override {}
  void abandon() override { run_.force_over(); }
  bool stuck() const override { return false; }
  void let_go() override {}

  void wake(uint32_t thread) override;
  void wait_for_word(const uint32_t* word, uint32_t expected) override;
  void notify() override {}
  void yield(uint32_t point) override;
  void trace(uint32_t event, uint64_t a, uint64_t b) override { run_.trace().add(event, a, b); }
  uint64_t trace_hash() const override { return run_.trace().hash(); }

 private:
  // Agents that could be stepped: schedulers by thread, cores by number, the lagging ones apart.
  struct Candidates {
    uint32_t schedulers = 0;
    pto_core_mask prompt{};
    pto_core_mask lagging{};
  };

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
  bool orchestration_pending_ = false;
  pto_core_mask dispatched_{};    // not acknowledged yet
  pto_core_mask acknowledged_{};  // not run yet
  // Cores whose present task is seldom chosen, as if it took long: without them every task finishes
  // soon after its dispatch, and orders that need one to be overtaken by several never come up.
  pto_core_mask lagging_{};
};

}  // namespace pto::sim
