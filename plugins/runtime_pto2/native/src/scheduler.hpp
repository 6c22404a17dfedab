// Connects the tasks of the stream, dispatches ready tasks and completes finished ones. Each
// scheduler thread has one lane, which the thread inside step(thread) owns.
//
// A step has four parts: it collects completions of the lane's cores, connects a batch of the
// stream, dispatches ready tasks in one batch, and retires tasks. A lane without work enters itself
// in resting_ and checks again before it returns idle.
#pragma once

#include <atomic>
#include <cstdint>

#include "clusters.hpp"
#include "completion.hpp"
#include "dispatcher.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/context.hpp"
#include "ready.hpp"
#include "resting.hpp"
#include "rings.hpp"
#include "wiring.hpp"

namespace pto::ring_buffer {

struct Progress {
  int64_t wired;  // number of tasks; each block counts
  int64_t dispatched;
  int64_t completed;
};

class Scheduler {
 public:
  Scheduler(Context& context, Rings& rings, Clusters& clusters)
      : context_(context),
        rings_(rings),
        resting_(context),
        ready_(context, rings, resting_),
        dispatcher_(context, rings, ready_),
        completion_(context, rings, ready_, clusters),
        wiring_(rings, ready_) {}

  // Return false if memory is exhausted. `shards`: the number of ready queues for each core type, 1
  // to Ready::kMostShards.
  bool create(uint32_t shards);
  void destroy();
  // Reset all data that schedulers own, including the words watermark, releasable and wired of the
  // rings.
  void begin();

  // Called by the orchestrator after `submitted` has advanced, and before it waits for tasks that
  // can retire because `scope_released` has advanced. The end of a scope alone wakes no scheduler.
  void published() { resting_.wake_if_all_rest(); }
  // Called by the orchestrator after it has advanced `logged`. Return whether all schedulers are
  // idle, so that none reads the stream unless published() is called.
  bool is_resting() const { return resting_.do_all_rest(); }
  // Called by the orchestrator when it submits no more tasks and all scopes have ended.
  void build_done();
  bool is_build_done() const { return build_done_.load(std::memory_order_acquire); }
  // Called by the orchestrator after it has set rings.waiting and before it checks again. Makes
  // visible the watermarks and phases that lanes wrote before they checked `waiting`.
  void synchronise() const;

  // Run a step of scheduler `thread`; return PTO_STEP_*.
  int32_t step(uint32_t thread);

  // Wake every scheduler, so that it checks the state of the run. Any thread may call this.
  void wake_all();

  // Make every later step return idle, or the error if there is one. Called while no other thread
  // runs.
  void halt() { is_halted_.store(true, std::memory_order_relaxed); }
  // Return whether a step would find work even if no core completes a task and no task is
  // submitted. Called while no other thread runs.
  bool has_work() const;

  // Return the current counts. Any thread may call this at any time.
  Progress progress() const;
  uint32_t threads() const { return threads_; }
  const LaneStatistics& statistics(uint32_t thread) const { return lanes_[thread].statistics; }

 private:
  void begin_lane(uint32_t thread);
  uint32_t collect(Lane& lane);
  static void name_fault(pto_error& error);
  bool latch_fault(const pto_core_mask& faulted, const Lane& lane);
  void signal_orchestrator(Lane& lane);
  int32_t rest(Lane& lane, bool has_progress);
  bool finds_work(const Lane& lane) const;
  bool is_complete(Lane& lane);

  Context& context_;
  Rings& rings_;
  Resting resting_;
  Ready ready_;
  Dispatcher dispatcher_;
  Completion completion_;
  Wiring wiring_;
  uint32_t threads_ = 0;
  std::atomic<bool> build_done_{false};
  std::atomic<bool> is_halted_{false};
  std::atomic<bool> has_announced_end_{false};
  alignas(64) std::atomic<int64_t> completed_{0};
  Lane lanes_[PTO_MAX_AICPU_THREADS] = {};
};

}  // namespace pto::ring_buffer
