// Wires the stream, dispatches ready tasks and completes finished ones. Each scheduler thread has
// one lane, owned by the thread inside step(thread).
//
// A step: completions of the lane's cores, a batch of the stream, dispatch in one batch, the tasks
// that can retire now. A lane without work enters itself in resting_ and checks again before it
// returns idle.
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
  int64_t wired;  // tasks, each block counted
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

  // `shards`: 1 to Ready::kMostShards ready queues per core type. False without memory.
  bool create(uint32_t shards);
  void destroy();
  // Resets all that schedulers own, in `rings` too: watermark, releasable, wired.
  void begin();

  // Orchestrator: `submitted` has advanced, or the orchestrator is about to wait for tasks that an
  // advanced `scope_released` allows to retire. The end of a scope alone wakes no scheduler.
  void published() { resting_.wake_if_all_rest(); }
  // Orchestrator, after it advanced `logged`: return whether only published() would make a
  // scheduler read the stream.
  bool is_resting() const { return resting_.do_all_rest(); }
  // Orchestrator: nothing will be submitted any more, all scopes have ended.
  void build_done();
  bool is_build_done() const { return build_done_.load(std::memory_order_acquire); }
  // Orchestrator, after it set rings.waiting and before it checks again: make the writes of lanes
  // before their check of `waiting` visible (watermarks and phases).
  void synchronise() const;

  // PTO_STEP_*, by scheduler `thread`.
  int32_t step(uint32_t thread);

  // Any thread: make every scheduler check the run again.
  void wake_all();

  // Make every later step return idle, and error once an error is latched. No other thread runs.
  void halt() { is_halted_.store(true, std::memory_order_relaxed); }
  // Return whether a step would find work without a completion or a submit. No other thread runs.
  bool has_work() const;

  // Any thread, at any time; a moment's picture.
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
