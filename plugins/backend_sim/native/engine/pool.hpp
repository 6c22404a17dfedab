// Threads mode: agents multiplexed over a pool of workers.
//
// A worker's round: step the schedulers that are its own and have something to do, then run the
// cores that they dispatched to. As long as kernels are short all of that stays on one worker, in
// its cache, without an atomic operation per task. Once a batch takes long, and before the first
// one was timed, its rest is *shared*: published in a mask from which every worker takes one core
// at a time, and a parked worker is woken; what nobody has taken comes back when kernels turn out
// to be short, so that batches become whole again. Callbacks are always shared; while they are
// short nobody is woken for them but by the caller, who looks every 10 ms whether somebody should
// be, and whether schedulers are behind a long kernel of their worker. A scheduler's own worker is
// number `thread % workers`, or the lowest one at work when that one is not; while the own worker
// is inside a kernel, an idle one steps in.
//
// Invariants
// - A scheduler is stepped by whoever holds its lock; a core is run by whoever took its bit.
// - Between rounds of a worker its batch is empty, and `again` names schedulers only it will step.
// - A worker parks only after it saw, with its bit in `parked_`, that there is nothing to do; who
//   makes something to do stores it first and reads `parked_` afterwards (all seq_cst).
// - The run is over when it ends and `active_` is empty; then no worker touches it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "activity/activity.hpp"
#include "activity/crash_handler.hpp"
#include "engine/engine.hpp"
#include "run/run.hpp"
#include "waiting/futex.hpp"

namespace pto::sim {

class Pool final : public Engine {
 public:
  Pool(Run& run, ActivityPage& activity, uint32_t workers, int32_t device);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  // Not for an abandoned pool that is stuck.
  ~Pool() override;

  void start(bool with_library) override;
  void orchestration_done(int32_t result) override;
  bool wait(int64_t timeout_ns) override;
  void ended() override;
  void abandon() override;
  bool stuck() const override;
  void let_go() override;

  void wake(uint32_t thread) override;
  void wait_for_word(const uint32_t* word, uint32_t expected) override;
  void notify() override;
  void yield(uint32_t) override {}
  void trace(uint32_t, uint64_t, uint64_t) override {}
  uint64_t trace_hash() const override { return 0; }

 private:
  struct alignas(128) Worker {
    uint32_t index = 0;
    std::atomic<uint32_t> sleeping{0};  // futex: 1 while parked
    // The worker's own:
    pto_core_mask batch{};       // cores to run
    pto_core_mask lent{};        // cores that it shared as long ones, whoever has them by now
    uint32_t again = 0;          // schedulers to step in the next round, by bit
    bool long_kernels = true;    // until a batch of several has been timed
    uint32_t short_batches = 0;  // timed in a row since the last one of long kernels
    bool calls_back = false;     // the last batch of several cores ran callbacks
    uint32_t rounds = 0;
    CrashNote note;
    std::thread thread;
  };
  // What ends serve(), apart from the end of the run: nothing, or a word that the orchestrator on
  // this worker waits for.
  struct Until {
    const uint32_t* word = nullptr;
    uint32_t expected = 0;
    bool reached() const noexcept {
      return word != nullptr && Orchestrator::changed(word, expected);
    }
  };

  // The worker's life.
  void start_worker(int32_t device);
  void stop_workers() noexcept;
  void work(Worker& worker) noexcept;
  void serve(Worker& worker, const Until& until) noexcept;
  void orchestrate(Worker& worker) noexcept;
  void enter(uint64_t bit) noexcept;
  void leave(uint64_t bit) noexcept;
  void sleep(Worker& worker, const Until& until) noexcept;
  bool has_work(const Until& until) noexcept;
  void signal_over() noexcept;

  // One round.
  bool round(Worker& worker) noexcept;
  bool step_own(Worker& worker) noexcept;
  bool step_others(Worker& worker) noexcept;
  bool step(Worker& worker, uint32_t thread) noexcept;
  void run_batch(Worker& worker) noexcept;
  void run_core(Worker& worker, uint32_t core) noexcept;
  void share_before_callback(Worker& worker) noexcept;
  void share(Worker& worker) noexcept;
  bool claim(Worker& worker) noexcept;
  void take_back(Worker& worker) noexcept;
  void hand_over(Worker& worker) noexcept;
  void call_home(Worker& worker) noexcept;
  bool check_stall() noexcept;

  uint32_t home(uint32_t thread) const noexcept;
  bool shared_empty() const noexcept;
  void wake_if_shared() noexcept;
  void look_for_stuck_work() noexcept;

  // Waiting and waking.
  void wait_on_worker(Worker& worker, const Until& until) noexcept;
  void wait_on_caller(const Until& until) noexcept;
  bool wake_worker(uint32_t index) noexcept;
  bool wake_one() noexcept;
  void wake_if_all_parked() noexcept;

  Run& run_;
  ActivityPage& activity_;
  const uint64_t all_;
  std::unique_ptr<Worker[]> workers_;
  uint32_t started_ = 0;                     // threads of workers_ that exist
  uint32_t home_of_[PTO_MAX_AICPU_THREADS];  // by scheduler, when that worker is at work

  alignas(64) std::atomic<uint64_t> active_{0};           // may touch the run; bit 63: a visitor
  std::atomic<uint64_t> orchestrating_{0};                // active, and inside the orchestration
  alignas(64) std::atomic<uint64_t> parked_{0};           // sleeps; cleared by whoever wakes it
  alignas(64) std::atomic<uint64_t> shared_[2] = {0, 0};  // dispatched cores for any worker
  alignas(64) std::atomic<bool> orchestration_pending_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> lost_{false};
  std::atomic<uint32_t> over_{0};           // futex: 1 when the run is over
  std::atomic<uint32_t> caller_parked_{0};  // on over_
  // Whose thread the orchestrator is on: a worker's index plus one, or 0 for the caller's.
  std::atomic<uint32_t> orchestrating_worker_{0};
  alignas(64) std::atomic<uint32_t> word_signal_{0};  // futex: bumped by notify()
  std::atomic<uint32_t> word_parked_{0};              // the caller sleeps on word_signal_
};

}  // namespace pto::sim
