// Drives one run of a runtime variant: counts the schedulers that are done, and proves stalls.
//
// A machine executes the run: the simulator, or the processor of a device. It decides which thread
// steps a scheduler, in which order, and how threads wait. Drive has the part that is the same on
// every machine.
//
// The proof that a run is stalled has three parts. No timer is involved.
// 1. Stop all agents. The thread that proves the stall takes the locks of all schedulers, so no
//    other thread steps one. The orchestrator waits or is done; a running one can add work.
// 2. Examine them. No core has a task that poll() has not reported. The thread clears the wake
//    flags, and then steps each scheduler once. Each step returns PTO_STEP_IDLE, no core has a task
//    after it, and no wake flag was set meanwhile. The state of the orchestrator has not changed
//    since before the first of these steps, and the word for which it waits has its old value.
// 3. Decide. The orchestrator is kept in its wait, and the variant's stalled() either finds work
//    (then every scheduler is woken) or latches the error that explains the stall (then the run
//    ends).
//
// A machine derives from Drive<Machine> and has these members:
//   bool running() const              whether the run continues; false after the first end_run()
//   void end_run(bool is_success)     ends the run; later calls have no effect
//   int32_t call_step(uint32_t)       calls the variant's schedule_step() for a scheduler
//   int32_t call_stalled()            calls the variant's stalled()
//   struct Pause                      its operator() waits shortly for a thread that holds a lock
// The machine's dispatch() inserts a core into `in_flight` of the scheduler, and its poll() removes
// a core that it reports: so the proof knows whether cores are busy. wake() only sets a flag; a
// machine whose threads park unparks one afterwards.
//
// Also runs on the processor of a device: C++17 without exceptions, RTTI and thread-local storage.
// It creates no thread and makes no system call.
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/abi/runtime.h"
#include "pto/abi/topology.h"
#include "pto/engine/core_mask.hpp"
#include "pto/engine/orchestrator_state.hpp"

namespace pto::engine {

// One scheduler of the variant. Any thread of the machine may step it while it holds the lock.
struct alignas(64) SchedulerState {
  // whether new work has arrived since the last step began
  std::atomic<uint32_t> wake{0};
  // Held during each step, and by the orchestrator if both share one AICPU thread.
  alignas(64) std::atomic<uint32_t> locked{0};
  // Guarded by `locked`:
  bool done = false;          // returned PTO_STEP_DONE; not stepped again in this run
  pto_core_mask in_flight{};  // dispatched and not yet reported by poll()

  bool try_lock() noexcept {
    return locked.load(std::memory_order_relaxed) == 0 &&
           locked.exchange(1, std::memory_order_acquire) == 0;
  }
  void unlock() noexcept { locked.store(0, std::memory_order_release); }

  // Clears the wake flag before a step, so that the step sees every change that was made before the
  // flag was set.
  void take_wake() noexcept {
    if (wake.load(std::memory_order_relaxed) != 0) wake.exchange(0, std::memory_order_acq_rel);
  }

  void reset() noexcept {
    locked.store(0, std::memory_order_relaxed);
    done = false;
    in_flight = {};
    wake.store(0, std::memory_order_relaxed);
  }
};

// What a machine states about a run before the run starts.
struct DriveShape {
  uint32_t schedulers;
  // Whether one AICPU thread both orchestrates and schedules. The orchestrator then holds the lock
  // of scheduler 0 whenever it runs.
  bool shares_thread;
  bool has_concurrent_build;  // whether the variant schedules while the graph is built
  bool has_library;           // otherwise the caller submits, and the caller's call has begun
};

template <class Machine, class Scheduler = SchedulerState>
class Drive {
 public:
  // Called while no thread is inside a run.
  void prepare_drive(const DriveShape& shape) noexcept {
    count_ = shape.schedulers;
    shares_thread_.store(shape.shares_thread, std::memory_order_relaxed);
    orchestrator_.reset();
    for (Scheduler& scheduler : schedulers_) scheduler.reset();
    done_count_.store(0, std::memory_order_relaxed);
    gate_open_.store(shape.has_concurrent_build, std::memory_order_relaxed);
    // The variant wakes a scheduler only after the scheduler has reported idle.
    if (shape.has_concurrent_build) wake_all();
    // If the run has a library, the thread that runs the orchestration takes this lock.
    if (shape.shares_thread && !shape.has_library) schedulers_[0].try_lock();
  }

  uint32_t schedulers() const noexcept { return count_; }
  Scheduler& scheduler(uint32_t thread) noexcept { return schedulers_[thread]; }
  OrchestratorState& orchestrator() noexcept { return orchestrator_; }
  const OrchestratorState& orchestrator() const noexcept { return orchestrator_; }
  bool shares_thread() const noexcept { return shares_thread_.load(std::memory_order_relaxed); }

  // The orchestrator's thread calls these. begin_build() is for a run with a library. After
  // end_build(), the thread calls wake_all(), once it is ready to step schedulers itself.
  void begin_build() noexcept {
    if (shares_thread()) lock(0);
  }
  void end_build() noexcept {
    gate_open_.store(true, std::memory_order_seq_cst);
    orchestrator_.finish();
    if (shares_thread()) schedulers_[0].unlock();
  }
  void begin_wait(const uint32_t* word, uint32_t expected) noexcept {
    orchestrator_.begin_wait(word, expected);
    if (shares_thread()) schedulers_[0].unlock();
  }
  void end_wait() noexcept {
    if (shares_thread()) lock(0);
    orchestrator_.end_wait(typename Machine::Pause{});
  }

  // Whether any scheduler may be stepped: the graph is complete, or the runtime schedules during
  // the build. Threads outside the run may call this and wake_pending(). Both use seq_cst loads,
  // which a thread that parks relies on.
  bool may_step() const noexcept {
    return gate_open_.load(std::memory_order_seq_cst) &&
           !(shares_thread() && orchestrator_.state() == OrchestratorState::running);
  }
  // Called with the scheduler's lock held. Returns false if the scheduler may not be stepped now.
  bool steppable(uint32_t thread) const noexcept {
    return !schedulers_[thread].done && gate_open_.load(std::memory_order_acquire);
  }
  // Takes one step of a scheduler that may be stepped, and returns PTO_STEP_*. Called with the
  // scheduler's lock held.
  int32_t step(uint32_t thread) noexcept {
    const int32_t result = machine().call_step(thread);
    if (result == PTO_STEP_ERROR) machine().end_run(false);
    if (result != PTO_STEP_DONE) return result;
    schedulers_[thread].done = true;
    const uint32_t done = done_count_.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (done == count_) machine().end_run(true);
    if (done == 1) wake_all();
    return result;
  }

  // An exchange, so that the next step also sees what happened before an earlier wake().
  void wake(uint32_t thread) noexcept {
    schedulers_[thread].wake.exchange(1, std::memory_order_seq_cst);
  }
  void wake_all() noexcept {
    for (uint32_t thread = 0; thread < count_; ++thread) wake(thread);
  }
  bool wake_pending() const noexcept {
    for (const Scheduler& scheduler : schedulers_) {
      if (scheduler.wake.load(std::memory_order_seq_cst) != 0) return true;
    }
    return false;
  }

  // Checks whether no progress is possible, and if so, has the variant resolve the stall. A thread
  // calls this when it finds no work, and holds no lock then. Returns true if there may be work now
  // or the run has ended; false if only another agent can continue.
  bool check_stall() noexcept {
    if (orchestrator_.state() == OrchestratorState::running) return false;
    uint32_t held = 0;
    for (typename Machine::Pause pause; held < count_ && machine().running();) {
      if (schedulers_[held].try_lock()) {
        ++held;
      } else if (orchestrator_.state() == OrchestratorState::running) {
        break;  // the orchestrator may hold one of the locks
      } else {
        pause();
      }
    }
    const bool has_moved = held == count_ && examine();
    while (held > 0) schedulers_[--held].unlock();
    return has_moved;
  }

 private:
  Machine& machine() noexcept { return static_cast<Machine&>(*this); }

  void lock(uint32_t thread) noexcept {
    // The holder releases the lock soon, because its steps are short.
    for (typename Machine::Pause pause; !schedulers_[thread].try_lock();) pause();
  }

  // Called with all locks held.
  bool examine() noexcept {
    const uint64_t before = orchestrator_.snapshot();
    if (!machine().running() || !orchestrator_.blocked() || !nothing_in_flight()) return false;
    if (gate_open_.load(std::memory_order_acquire) && !all_idle()) return true;
    if (!machine().running()) return true;
    if (!orchestrator_.enter_wait(before)) return false;
    const bool is_blocked = orchestrator_.blocked();
    const int32_t result = is_blocked ? machine().call_stalled() : PTO_STEP_IDLE;
    orchestrator_.leave_wait();
    if (!is_blocked) return false;
    if (result != PTO_STEP_PROGRESS) machine().end_run(false);
    wake_all();
    return true;
  }

  bool nothing_in_flight() const noexcept {
    for (uint32_t thread = 0; thread < count_; ++thread) {
      if (!empty(schedulers_[thread].in_flight)) return false;
    }
    return true;
  }

  // Takes one step of each scheduler. Returns true if each step reported idle, and no scheduler was
  // woken since the first of these steps.
  bool all_idle() noexcept {
    for (uint32_t thread = 0; thread < count_; ++thread) {
      if (!schedulers_[thread].done) schedulers_[thread].take_wake();
    }
    bool idle = true;
    for (uint32_t thread = 0; thread < count_ && machine().running(); ++thread) {
      if (schedulers_[thread].done) continue;
      const bool progress = step(thread) != PTO_STEP_IDLE || !empty(schedulers_[thread].in_flight);
      idle = idle && !progress;
      if (progress) wake(thread);
    }
    for (uint32_t thread = 0; thread < count_; ++thread) {
      const Scheduler& scheduler = schedulers_[thread];
      if (!scheduler.done && scheduler.wake.load(std::memory_order_seq_cst) != 0) idle = false;
    }
    return idle;
  }

  uint32_t count_ = 0;
  std::atomic<bool> shares_thread_{false};
  std::atomic<bool> gate_open_{false};  // whether schedulers may be stepped
  std::atomic<uint32_t> done_count_{0};
  OrchestratorState orchestrator_;
  Scheduler schedulers_[PTO_MAX_AICPU_THREADS];
};

}  // namespace pto::engine
