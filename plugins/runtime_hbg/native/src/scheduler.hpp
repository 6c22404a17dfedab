// Dispatches ready tasks and completes finished ones. One lane for each scheduler thread.
//
// Where a ready task waits, by core type:
//   released_   made ready by a completed predecessor, and not dispatched at once by the scheduler
//               that saw it; open to every scheduler
//   admitted_   ready from the start, or published ready by the orchestrator; open to every one
//   lane.local  just released; emptied at the end of each step, except with a single scheduler
//
// A lane that finds nothing for a free core enters itself in hungry_ before it says idle; whoever
// then puts a task into a shared queue wakes it. A task that several schedulers could run therefore
// never waits while a core for it is free. Released tasks go first: what is begun is finished.
#pragma once

#include <atomic>
#include <cstdint>

#include "graph.hpp"
#include "ready.hpp"

namespace pto::build_graph {

// Counters of one scheduler; plain numbers that others read after the run.
struct LaneStatistics {
  uint64_t dispatches;
  uint64_t batches;
  uint64_t shared;      // tasks that it left to all schedulers
  uint64_t taken;       // tasks that it took from a shared queue
  uint64_t ready_peak;  // most ready tasks that it saw waiting
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

  // Orchestrator: `task` is ready, now or when the build is over.
  void admit(int32_t task);
  // Orchestrator: the graph is complete; with a graph not built concurrently, admits the seeds.
  void build_done();
  bool is_build_done() const { return build_done_.load(std::memory_order_acquire); }

  // PTO_STEP_*, by scheduler `thread`.
  int32_t step(uint32_t thread);

  // Any thread: every scheduler shall look at the run again.
  void wake_all();

  // Nobody else runs: whether a ready task waits for a core.
  bool has_ready_task() const;

  // Any thread, at any time; a moment's picture.
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
    int64_t counted;                  // of its completed tasks, those that completed_ counts
    std::atomic<int64_t> dispatched;  // others read these two for reports
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
  bool is_exclusive_ =
      false;  // one thread touches the graph at a time: no atomic read-modify-write
  std::atomic<bool> build_done_{false};
  std::atomic<bool> has_announced_end_{false};
  alignas(64) std::atomic<int64_t> completed_{0};
  alignas(64) std::atomic<uint32_t> hungry_[PTO_CORE_TYPES]{};  // bit t: scheduler t
  alignas(64) std::atomic<uint32_t> is_sharing_[PTO_CORE_TYPES]{};
  SharedReady released_[PTO_CORE_TYPES];
  SharedReady admitted_[PTO_CORE_TYPES];
  Lane lanes_[PTO_MAX_AICPU_THREADS];
};

}  // namespace pto::build_graph
