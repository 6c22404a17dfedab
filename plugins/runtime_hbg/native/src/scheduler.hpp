// Dispatches ready tasks and completes finished ones. Each scheduler thread has one lane.
//
// The queues of ready tasks, by core type:
//   released_   tasks that a completed predecessor made ready, unless the scheduler that saw the
//               completion dispatched them at once; every scheduler may take them
//   admitted_   tasks that were ready at the start or when they were published; every scheduler
//               may take them
//   lane.local  tasks released in this step; the step moves the rest to released_ at its end,
//               except if there is only one scheduler
//
// A lane that finds no task for a free core sets its bit in hungry_ before it reports idle. A
// thread that then puts a task into a shared queue wakes this lane. So no task in a shared queue
// waits while a core for it is free. Released tasks are dispatched first: work that has begun then
// finishes before new work begins.
#pragma once

#include <atomic>
#include <cstdint>

#include "graph.hpp"
#include "ready.hpp"

namespace pto::build_graph {

// Counters of one scheduler. Other threads read them only after the run.
struct LaneStatistics {
  uint64_t dispatches;
  uint64_t batches;
  uint64_t shared;      // tasks that it offered to all schedulers
  uint64_t taken;       // tasks that it took from a shared queue
  uint64_t ready_peak;  // largest number of ready tasks that waited for its cores
};

struct Progress {
  int64_t dispatched;
  int64_t completed;
};

class Scheduler {
 public:
  Scheduler(Context& context, Graph& graph) : context_(context), graph_(graph) {}

  bool create();
  void destroy();
  void begin();

  // Called by the orchestrator when `task` is ready. The schedulers receive it at once or, if they
  // do not run yet, at the end of the build.
  void admit(int32_t task);
  // Called by the orchestrator when the graph is complete. Admits the tasks without predecessors,
  // unless they were admitted during the build.
  void build_done();
  bool is_build_done() const { return build_done_.load(std::memory_order_acquire); }

  // Takes one step of scheduler `thread`; returns PTO_STEP_*.
  int32_t step(uint32_t thread);

  // Wakes every scheduler, so that it checks the state of the run. Any thread may call this.
  void wake_all();

  // Whether a ready task waits for a core. Call this only while no scheduler runs.
  bool has_ready_task() const;

  // Returns the current counts. Any thread may call this at any time.
  Progress progress() const;
  uint32_t threads() const { return threads_; }
  const LaneStatistics& statistics(uint32_t thread) const { return lanes_[thread].statistics; }

 private:
  struct alignas(64) Lane {
    uint32_t thread;
    uint32_t bit;
    uint32_t in_flight;
    uint32_t free_count[PTO_CORE_TYPES];
    pto_core_mask free_cores[PTO_CORE_TYPES];
    LocalReady local[PTO_CORE_TYPES];
    int64_t counted;  // the number of its completed tasks that are already included in completed_
    std::atomic<int64_t> dispatched;  // other threads read these two values for reports
    std::atomic<int64_t> completed;
    LaneStatistics statistics;
    TaskRecord* running[PTO_MAX_CORES];
    pto_dispatch batch[PTO_MAX_CORES];
  };

  void begin_lane(uint32_t thread);
  void collect(Lane& lane);
  bool latch_fault(const pto_core_mask& faulted, const Lane& lane);
  void complete(Lane& lane, uint32_t core);
  uint32_t close(TaskRecord& record);
  bool release(TaskRecord& record);
  uint32_t fill_cores(Lane& lane);
  uint32_t take_ready(Lane& lane, uint32_t type, int32_t* tasks);
  uint32_t put_on_cores(Lane& lane, uint32_t type, const int32_t* tasks, uint32_t count,
                        pto_dispatch* batch);
  void share(Lane& lane, uint32_t type);
  void leave_hungry(Lane& lane, uint32_t type);
  int32_t rest(Lane& lane, bool has_progress);
  bool is_complete(Lane& lane);
  void wake_hungry(uint32_t type, uint32_t tasks);
  bool has_shared(uint32_t type) const;

  Context& context_;
  Graph& graph_;
  uint32_t threads_ = 0;
  // whether only one thread at a time uses the graph: the counts then need no atomic
  // read-modify-write
  bool is_exclusive_ = false;
  std::atomic<bool> build_done_{false};
  std::atomic<bool> has_announced_end_{false};
  alignas(64) std::atomic<int64_t> completed_{0};
  alignas(64) std::atomic<uint32_t> hungry_[PTO_CORE_TYPES]{};  // bit t stands for scheduler t
  alignas(64) std::atomic<uint32_t> is_sharing_[PTO_CORE_TYPES]{};
  SharedReady released_[PTO_CORE_TYPES];
  SharedReady admitted_[PTO_CORE_TYPES];
  Lane lanes_[PTO_MAX_AICPU_THREADS];
};

}  // namespace pto::build_graph
