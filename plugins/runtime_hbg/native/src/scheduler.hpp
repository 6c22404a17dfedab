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

namespace pto::build_graph {

// Ready tasks. Both queues are first in, first out, and have no limit:
//
//   SharedReady  one producer at a time, any number of claiming schedulers, no lock: an array that
//                only grows during a run, with the claimed part in front.
//   LocalReady   belongs to one scheduler; linked through the task records.
class SharedReady {
 public:
  bool create(Memory& memory) { return entries_.create(memory); }
  void destroy() { entries_.destroy(); }

  // Call only while no other thread uses the queue.
  void restart() {
    staged_ = 0;
    tail_.store(0, std::memory_order_relaxed);
    head_.store(0, std::memory_order_relaxed);
  }

  // Called by the producer: appends a task, which other threads see after the next expose().
  // Returns false if memory is exhausted.
  bool stage(int32_t task) {
    if (!entries_.grow_to(staged_)) return false;
    entries_[staged_++] = task;
    return true;
  }

  // Called by the producer: makes the staged tasks visible. The producer stores the tail and then
  // checks for schedulers without work. Such a scheduler first enters their set and then calls
  // has_work(). So at least one of the two threads sees the change of the other.
  void expose() { tail_.store(staged_, std::memory_order_seq_cst); }

  bool has_work() const { return size() > 0; }

  uint32_t size() const {
    const uint32_t head = head_.load(std::memory_order_acquire);
    return tail_.load(std::memory_order_seq_cst) - head;
  }

  // Takes at most `limit` tasks from the front and returns their number. Any scheduler may call
  // this. Because of the acquire load of `head_`, the tail that is read next is at least as new as
  // the tail that the last claiming scheduler saw.
  uint32_t claim(int32_t* out, uint32_t limit) {
    uint32_t head = head_.load(std::memory_order_acquire);
    uint32_t count = 0;
    do {
      const uint32_t available = tail_.load(std::memory_order_acquire) - head;
      count = available < limit ? available : limit;
      if (count == 0) return 0;
    } while (!head_.compare_exchange_weak(head, head + count, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
    for (uint32_t i = 0; i < count; ++i) out[i] = entries_[head + i];
    return count;
  }

 private:
  ChunkedArray<int32_t, 14> entries_;
  uint32_t staged_ = 0;
  alignas(64) std::atomic<uint32_t> tail_{0};
  alignas(64) std::atomic<uint32_t> head_{0};
};

class LocalReady {
 public:
  void restart() {
    first_ = last_ = kNoTask;
    size_ = 0;
  }

  void push(const Graph& graph, int32_t task) {
    graph.record(task).next_ready = kNoTask;
    if (first_ == kNoTask) {
      first_ = task;
    } else {
      graph.record(last_).next_ready = task;
    }
    last_ = task;
    ++size_;
  }

  int32_t pop(const Graph& graph) {
    const int32_t task = first_;
    first_ = graph.record(task).next_ready;
    --size_;
    return task;
  }

  uint32_t size() const { return size_; }

 private:
  int32_t first_ = kNoTask;
  int32_t last_ = kNoTask;
  uint32_t size_ = 0;
};

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
    BuiltTask* running[PTO_MAX_CORES];
    pto_dispatch batch[PTO_MAX_CORES];
  };

  void begin_lane(uint32_t thread);
  void collect(Lane& lane);
  bool latch_fault(const pto_core_mask& faulted, const Lane& lane);
  void complete(Lane& lane, uint32_t core);
  uint32_t close(BuiltTask& record);
  bool release(BuiltTask& record);
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
