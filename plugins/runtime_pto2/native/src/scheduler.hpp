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
#include "pto/abi/runtime.h"
#include "pto/engine/context.hpp"
#include "ready.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

// Wiring: read the stream of submits and connect each task with its producers (the published name
// is "incremental scan").
//
// One scheduler at a time does the wiring, in stream order. It holds a lock for which no other
// thread waits. Tasks without an uncompleted producer go directly to the ready queues (the
// published name is "early-ready drain").
class Wiring {
 public:
  static constexpr uint32_t kBatch = 64;  // maximum number of submits in one step

  Wiring(Rings& rings, Ready& ready) : rings_(rings), ready_(ready) {}

  // Reset the members `wired`, `watermark` and `releasable` of the rings. `alone`: there is only
  // one scheduler.
  void begin(bool alone);

  struct Step {
    uint32_t wired;  // number of submits
    uint32_t rings;  // the rings, as bits, in which more tasks may be able to retire now
  };
  // Called by lane `thread`: connect a batch of the stream, unless another thread is connecting
  // one. `eager`: include submits that were not announced yet.
  Step step(uint32_t thread, bool eager, LaneStatistics& statistics);

  // Return whether step() would find work. The wiring thread calls this before it becomes idle.
  bool has_news(bool eager) const;
  bool is_at_work() const { return is_locked_.load(std::memory_order_seq_cst) != 0; }
  // Return the number of connected tasks so far; each block counts.
  int64_t tasks() const { return tasks_.load(std::memory_order_acquire); }

 private:
  void look(bool eager);
  uint32_t wire_batch(uint32_t thread, LaneStatistics& statistics);
  void prefetch(uint64_t position);
  uint32_t wire(uint32_t thread, SlotRef head, LaneStatistics& statistics);
  void init(const TaskRing& ring, int64_t number, const TaskDescriptor& descriptor);
  bool connect(RingTaskState& state, const TaskDescriptor& descriptor, LaneStatistics& statistics);
  uint32_t hold(const TaskDescriptor& descriptor);
  bool is_scope_open(SlotRef task) const;
  bool push(EdgeRef ref);
  uint32_t release_rings();

  Rings& rings_;
  Ready& ready_;
  bool alone_ = false;
  alignas(64) std::atomic<uint32_t> is_locked_{0};
  std::atomic<int64_t> tasks_{0};
  // Only the wiring thread uses the following members.
  uint64_t at_ = 0;             // next position in the log
  uint64_t known_ = 0;          // number of submits at the last check
  int64_t ended_[kRings] = {};  // the values of scope_released, which are read before the submits
  int64_t released_[kRings] = {};  // the values that were last written to releasable
  int64_t next_[kRings] = {};      // next task to connect
};

// The completion of a task. The task releases its consumers, and then the producers that it holds.
// Its slot then retires if the task is the oldest of its ring.
//
// Any scheduler may call these functions for tasks whose kernels have returned on its cores. No
// thread waits: the thread that decrements a count to 0 takes the next step. A thread that finds
// that another thread is already retiring tasks of the ring leaves the work to that thread.
class Completion {
 public:
  Completion(Context& context, Rings& rings, Ready& ready, Clusters& clusters)
      : context_(context), rings_(rings), ready_(ready), clusters_(clusters) {}

  // `alone`: there is only one scheduler.
  void begin(bool alone) { alone_ = alone; }

  // Called by lane `thread` when the kernel of `task` has returned. Return, as bits, the rings in
  // which retire() may find a task.
  uint32_t complete(uint32_t thread, SlotRef task, uint32_t core);

  // Retire the oldest tasks of a ring as far as possible. Return the number of retired tasks.
  uint32_t retire(uint32_t ring);

 private:
  uint32_t finish(uint32_t thread, SlotRef task);
  void done(RingTaskState& state);
  void record_releases(uint32_t thread, SlotRef task, EdgeRef edge);
  void release_consumers(uint32_t thread, SlotRef task, EdgeRef edge);
  uint32_t release_producers(const TaskDescriptor& descriptor);
  uint32_t retire_oldest(TaskRing& ring);
  static bool is_over(const RingTaskState& state);

  Context& context_;
  Rings& rings_;
  Ready& ready_;
  Clusters& clusters_;
  bool alone_ = false;
};

// The data that a scheduler thread owns.
struct alignas(64) Lane {
  uint32_t thread;
  uint32_t in_flight;
  bool is_eager;            // whether the lane was about to become idle after its last step
  uint32_t fills[kQueues];  // number of times that the lane found tasks for free cores
  uint32_t free_count[PTO_CORE_TYPES];
  pto_core_mask free_cores[PTO_CORE_TYPES];
  // The clusters, as bits, whose cores take no single tasks, because a task waits for whole ones.
  uint32_t reserved_clusters;
  pto_core_mask left;      // own cores that a cohort gathers or has taken; see cohorts.hpp
  pto_core_mask borrowed;  // cores of other lanes that this lane has taken for a cohort
  uint64_t further_lanes;  // number of dispatches for the second and third lanes of tasks
  // the number of the lane's completed tasks that are already included in completed_
  int64_t counted;
  char* scratch;     // memory for payloads of blocks, in use until dispatch() has copied them
  uint32_t used;     // bytes of scratch in use
  uint32_t batched;  // tasks in batch
  std::atomic<int64_t> dispatched;  // other threads read these two values
  std::atomic<int64_t> completed;
  LaneStatistics statistics;
  SlotRef running[PTO_MAX_CORES];
  pto_dispatch batch[PTO_MAX_CORES];
};

inline uint32_t first_of(const pto_core_mask& mask) {
  const uint32_t word = mask.words[0] != 0 ? 0 : 1;
  return word * 64 + static_cast<uint32_t>(__builtin_ctzll(mask.words[word]));
}

// Dispatches ready tasks to the free cores of a scheduler thread.
//
// Each function works on one lane, which is the state of one scheduler thread. Only the thread
// inside step() of this lane uses it.
class Dispatcher {
 public:
  Dispatcher(Context& context, Rings& rings, Ready& ready)
      : context_(context), rings_(rings), ready_(ready) {}

  // The size of Lane::scratch in bytes: it holds the payloads of the blocks in one batch. Only its
  // used pages take memory.
  static constexpr uint32_t kScratchBytes = PTO_MAX_CORES * PTO_MAX_PAYLOAD;

  // Mark the core as free.
  void free_core(Lane& lane, uint32_t core);
  // Mark a core whose task has completed as free, for the lane to which it belongs.
  void finish_core(Lane& lane, uint32_t core);
  // Take back cores that a cohort has returned.
  void take_back(Lane& lane);
  // Take ready tasks and dispatch them in one batch. Return whether there was a task.
  bool fill_cores(Lane& lane);
  // Return the number of free cores that single tasks may use.
  uint32_t usable_count(const Lane& lane, uint32_t type) const {
    return lane.reserved_clusters == 0 ? lane.free_count[type] : count_usable(lane, type);
  }
  // Return the number of clusters of which all cores are free.
  uint32_t free_clusters(const Lane& lane) const;
  // Return whether the lane can leave cores to a cohort, or take some back.
  bool has_cohort_work(const Lane& lane) const;
  // Return the function id of the kernel that a task runs on this core.
  int32_t func_id_on(uint32_t core, const TaskDescriptor& descriptor) const;

 private:
  [[gnu::cold]] uint32_t count_usable(const Lane& lane, uint32_t type) const;
  void fill_cohort(Lane& lane);
  void leave_cores(Lane& lane, SlotRef head);
  void put_cohort(Lane& lane, SlotRef head, pto_core_mask cores);
  void leave_core(Lane& lane, uint32_t core, pto_core_mask& left) const;
  void fill_clusters(Lane& lane);
  bool is_free(const Lane& lane, uint32_t cluster, uint32_t lanes) const;
  uint32_t core_of(uint32_t cluster, uint32_t lane) const;
  void put_on_cluster(Lane& lane, uint32_t cluster, SlotRef task);
  pto_core_mask usable_cores(const Lane& lane, uint32_t type) const;
  void take_core(Lane& lane, uint32_t type, uint32_t core, SlotRef task,
                 const pto_payload* payload);
  void fill_unpinned(Lane& lane, uint32_t type, bool others_first);
  void fill_pinned(Lane& lane, uint32_t type);
  void prefetch_payload(SlotRef task) const;
  void put_on_core(Lane& lane, uint32_t type, uint32_t core, SlotRef task);
  pto_payload* copy_payload(Lane& lane, const TaskDescriptor& descriptor);
  void dispatch(Lane& lane);

  Context& context_;
  Rings& rings_;
  Ready& ready_;
};

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
  uint32_t complete_dummies(Lane& lane);
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
