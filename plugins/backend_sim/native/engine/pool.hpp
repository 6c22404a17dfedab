// Threads mode: many agents (schedulers and cores) run on a pool of few workers.
//
// In a round, a worker steps those of its schedulers that have work. Then it runs the cores to
// which they dispatched tasks (its batch). While kernels are short, all of this stays on one worker
// and in its cache, and a task needs no atomic operation. If a batch takes long, or no batch has
// been timed yet, the worker *shares* the rest of the batch: it publishes the cores in a mask from
// which each worker takes one core at a time, and wakes a parked worker. If the kernels are found
// to be short, the worker takes back the cores that no other worker has taken. Callbacks are always
// shared. While callbacks are short, no worker wakes another worker for them. Instead, the waiting
// caller checks every 10 ms whether a worker should be woken, and whether schedulers wait for a
// worker that is inside a long kernel. The home worker of a scheduler is number `thread % workers`,
// or the lowest active worker if that one is inactive. While the home worker is inside a kernel, an
// idle worker steps the scheduler.
//
// Invariants
// - The holder of a scheduler's lock steps it; the worker that cleared a core's bit runs the core.
// - Between rounds the batch of a worker is empty, and only this worker steps the schedulers in
//   `again`.
// - A worker sets its bit in `parked_`, finds that no work is left, and only then parks. A thread
//   that adds work stores the work first and reads `parked_` afterwards (all seq_cst).
// - The run is over when it has ended and `active_` is empty. After that, no worker accesses the
// run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "activity.hpp"
#include "engine/engine.hpp"
#include "engine/kernel_threads.hpp"
#include "run/run.hpp"
#include "waiting.hpp"

namespace pto::sim {

class Pool final : public Engine {
 public:
  Pool(SimRun& run, ActivityPage& activity, uint32_t workers, int32_t device);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  // Do not destroy an abandoned pool that has a stuck thread.
  ~Pool() override;

  void start(bool with_library) override;
  void orchestration_done(int32_t result) override;
  bool wait(int64_t timeout_ns) override;
  void ended() override;
  void abandon() override;
  bool stuck() const override;
  void detach_threads() override;

  void wake(uint32_t thread) override;
  void wait_for_word(const uint32_t* word, uint32_t expected) override;
  void notify() override;
  void yield(uint32_t) override {}
  void order(uint32_t, uint64_t, uint64_t) override {}
  uint64_t trace_hash() const override { return 0; }

 private:
  struct alignas(128) Worker {
    uint32_t index = 0;
    std::atomic<uint32_t> sleeping{0};  // futex: 1 while parked
    // Only the worker itself accesses the members below.
    pto_core_mask batch{};  // cores that the worker must run
    // cores of this worker's batches that it has shared, even if other workers have taken them
    pto_core_mask lent{};
    uint32_t again = 0;        // a bit for each scheduler that must be stepped in the next round
    bool long_kernels = true;  // true until a batch of several cores has been timed
    // number of consecutive batches since the last batch of long kernels
    uint32_t short_batches = 0;
    bool calls_back = false;  // whether the last batch of several cores ran callbacks
    uint32_t rounds = 0;
    uint64_t parked_at = 0;  // clock of the trace when it last fell asleep; 0 once it is recorded
    CrashNote note;
    std::thread thread;
  };
  // A condition that ends serve() before the run ends: the word for which the orchestrator on this
  // worker waits has changed. There is no such condition if `word` is null.
  struct Until {
    const uint32_t* word = nullptr;
    uint32_t expected = 0;
    bool reached() const noexcept {
      return word != nullptr && OrchestratorState::changed(word, expected);
    }
  };

  // Threads start, serve and stop in these functions. work() is the main function of a thread.
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

  // One round of a worker, and the steps of a round.
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
  void wake_home_workers(Worker& worker) noexcept;

  uint32_t home(uint32_t thread) const noexcept;
  bool shared_empty() const noexcept;
  void wake_if_shared() noexcept;
  void check_stuck_work() noexcept;

  // Waiting and waking.
  void wait_on_worker(Worker& worker, const Until& until) noexcept;
  void wait_on_caller(const Until& until) noexcept;
  bool wake_worker(uint32_t index) noexcept;
  bool wake_one() noexcept;
  void wake_if_all_parked() noexcept;

  SimRun& run_;
  ActivityPage& activity_;
  const uint64_t all_;
  std::unique_ptr<Worker[]> workers_;
  uint32_t started_ = 0;  // number of threads in workers_ that exist
  // the number of each scheduler's home worker
  uint32_t home_of_[PTO_MAX_AICPU_THREADS];

  // a bit for each worker that may access the run; bit 62: the threads of kernels that wait for
  // each other; bit 63: another thread
  alignas(64) std::atomic<uint64_t> active_{0};
  std::atomic<uint64_t> orchestrating_{0};  // those of active_ that are inside the orchestration
  // sleeping workers; the thread that wakes one clears its bit
  alignas(64) std::atomic<uint64_t> parked_{0};
  // dispatched cores that any worker may run
  alignas(64) std::atomic<uint64_t> shared_[2] = {0, 0};
  alignas(64) std::atomic<bool> orchestration_pending_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> lost_{false};
  std::atomic<uint32_t> over_{0};           // futex: 1 when the run is over
  std::atomic<uint32_t> caller_parked_{0};  // whether the caller sleeps on over_
  // The thread of the orchestrator: a worker's index plus one, or 0 for the caller's thread.
  std::atomic<uint32_t> orchestrating_worker_{0};
  alignas(64) std::atomic<uint32_t> word_signal_{0};  // futex: incremented by notify()
  std::atomic<uint32_t> word_parked_{0};              // whether the caller sleeps on word_signal_
  KernelThreads threads_;
};

}  // namespace pto::sim
