// Connects the tasks of the stream, dispatches ready tasks and completes finished ones. Each
// scheduler thread has one lane, which the thread inside step(thread) owns.
//
// The parts of a step: completions of the lane's cores, a batch of the stream, dispatch in one
// batch, tasks that can retire now. A lane without work enters itself in resting_ and checks again
// before it returns idle.
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

  // `shards`: the number of ready queues for each core type, 1 to Ready::kMostShards. False if
  // memory is exhausted.
  bool create(uint32_t shards);
  void destroy();
  // Reset all data that schedulers own, also in `rings`: watermark, releasable, wired.
  void begin();

  // Called by the orchestrator: `submitted` has advanced, or the orchestrator is about to wait for
  // tasks that can retire because `scope_released` has advanced. The end of a scope alone wakes no
  // scheduler.
  void published() { resting_.wake_if_all_rest(); }
  // Called by the orchestrator after it advanced `logged`: return whether only published() would
  // make a scheduler read the stream.
  bool is_resting() const { return resting_.do_all_rest(); }
  // Called by the orchestrator: it submits no more tasks, and all scopes have ended.
  void build_done();
  bool is_build_done() const { return build_done_.load(std::memory_order_acquire); }
  // Called by the orchestrator after it set rings.waiting and before it checks again: make the
  // writes that lanes made before their check of `waiting` visible (watermarks and phases).
  void synchronise() const;

  // Run a step of scheduler `thread`; return PTO_STEP_*.
  int32_t step(uint32_t thread);

  // Make every scheduler check the run again. Any thread may call this.
  void wake_all();

  // Make every later step return idle, or the error once there is one. Called while no other thread
  // runs.
  void halt() { is_halted_.store(true, std::memory_order_relaxed); }
  // Return whether a step would find work without a completion or a submit. Called while no other
  // thread runs.
  bool has_work() const;

  // Any thread may call this at any time. The result is a snapshot.
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
