// One run of a graph on one device: its phase, its agents, and their steps. The engine decides
// which thread takes a step, and in which order.
//
// Phases: idle -> running -> ending (no new step starts) -> over (no thread is inside the run) ->
// idle.
#pragma once

#include <atomic>
#include <cstdint>

#include "cores.hpp"
#include "options.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/drive.hpp"
#include "run/tracer.hpp"
#include "waiting.hpp"

namespace pto::sim {

enum class Phase : uint32_t { idle, running, ending, over };
enum class Ending : uint32_t { none, success, failure, aborted };

using engine::OrchestratorState;

// One scheduler thread of the simulated AICPU, as an agent that any thread of the pool may step.
struct Scheduler : engine::SchedulerState {
  // Dispatched, but not yet taken by the thread that steps the scheduler. Guarded by the lock.
  pto_core_mask dispatched{};
  // The same, for kernels that wait for each other (PTO_DISPATCH_TOGETHER).
  pto_core_mask together{};

  void reset() noexcept {
    SchedulerState::reset();
    dispatched = together = {};
  }
};

static_assert(sizeof(Scheduler) == 128, "the wake flag and the guarded members: two cache lines");

class SimRun : public engine::Drive<SimRun, Scheduler> {
 public:
  // Waits for a thread that holds a lock for a short time.
  struct Pause {
    void operator()() noexcept {
      if (!backoff.again()) backoff.reset();
    }
    Backoff backoff;
  };

  SimRun(Cores& cores, Tracer& tracer, bool deterministic) noexcept
      : cores_(cores), tracer_(tracer), deterministic_(deterministic) {}

  // prepare() replaces this topology by that of the run.
  void attach(const pto_runtime_api* api, void* runtime, const pto_topology& topology) noexcept;
  // Called before the engine starts, only in phase idle or over.
  void prepare(const SimRunShape& shape, bool with_library) noexcept;
  // While its orchestrator waits, the caller's thread calls attend() at least this often.
  static constexpr int64_t kAttendNs = 50'000'000;
  void set_attendant(void (*attend)(void*), void* context) noexcept {
    attend_ = attend;
    attend_context_ = context;
  }
  void attend() noexcept {
    attend_to_wait();
    if (attend_ != nullptr) attend_(attend_context_);
  }
  // Lets the runtime report that the orchestrator waits. Called on the caller's thread.
  void attend_to_wait() noexcept {
    if (orchestrator().state() != OrchestratorState::waiting || api_->attend == nullptr) return;
    api_->attend(runtime_);
  }
  void begin() noexcept { state_.store(next_number() | bits(Phase::running)); }
  // Ends the run. If it has ended already, the first `ending` is kept. Any thread may call it.
  void end(Ending ending) noexcept;
  // The number of the run. With it, a late thread detects that the next run has started.
  using Number = uint64_t;
  Number number() const noexcept { return state_.load() & ~kPhaseBits; }
  // Changes the phase from ending to over. Returns true only to the caller that made the change;
  // returns false if `number` is a past run.
  bool close(Number number) noexcept;
  void force_over() noexcept { state_.store(number() | bits(Phase::over)); }
  void forget() noexcept { state_.store(number() | bits(Phase::idle)); }

  Phase phase() const noexcept { return static_cast<Phase>(state_.load() & kPhaseBits); }
  bool running() const noexcept { return phase() == Phase::running; }
  Ending ending() const noexcept { return ending_.load(std::memory_order_acquire); }

  // Runs the orchestration of the run's library on the calling thread.
  void orchestrate() noexcept;
  void orchestration_done(int32_t result) noexcept;

  Cores& cores() noexcept { return cores_; }
  Tracer& tracer() noexcept { return tracer_; }
  const pto_topology& topology() const noexcept { return topology_; }

  // Whether the runtime must still be notified of an abort, because the run or its orchestration is
  // in progress.
  bool hears() const noexcept {
    return running() ||
           (phase() != Phase::idle && orchestrator().state() != OrchestratorState::done);
  }
  // Calls that Drive makes into the variant.
  int32_t call_step(uint32_t thread) noexcept;
  int32_t call_stalled() noexcept;
  void end_run(bool is_success) noexcept { end(is_success ? Ending::success : Ending::failure); }

  // Calls that the runtime makes inside a step.
  void dispatch(uint32_t thread, const pto_dispatch* batch, uint32_t count) noexcept;
  void poll(uint32_t thread, pto_poll_result* result) noexcept;

  uint64_t build_ns() const noexcept;
  uint64_t run_ns() const noexcept;

 private:
  static constexpr uint64_t kPhaseBits = 3;
  static constexpr uint64_t bits(Phase phase) noexcept { return static_cast<uint64_t>(phase); }
  Number next_number() const noexcept { return number() + kPhaseBits + 1; }

  Cores& cores_;
  Tracer& tracer_;
  void (*attend_)(void*) = nullptr;
  void* attend_context_ = nullptr;
  const bool deterministic_;
  const pto_runtime_api* api_ = nullptr;
  void* runtime_ = nullptr;
  pto_topology topology_{};

  alignas(64) std::atomic<uint64_t> state_{0};  // number of the run, and its phase
  std::atomic<Ending> ending_{Ending::none};
  std::atomic<uint64_t> first_step_ns_{0};
  uint64_t started_ns_ = 0;
  std::atomic<uint64_t> built_ns_{0};
  std::atomic<uint64_t> ended_ns_{0};
};

}  // namespace pto::sim
