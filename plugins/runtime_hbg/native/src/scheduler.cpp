#include "scheduler.hpp"

#include "pto/engine/phase_clock.hpp"

namespace pto::build_graph {
namespace {

// These functions are separate, so that a run without a trace does not read the payloads.

[[gnu::noinline]] void trace_seeds(const pto_platform* platform, const Graph& graph) {
  graph.for_each_seed([platform](int32_t task, uint32_t) {
    pto_record(platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_READY, static_cast<uint64_t>(task), 0);
  });
}

[[gnu::noinline]] void trace_complete(const pto_platform* platform, uint32_t thread,
                                      const BuiltTask& record, uint32_t core) {
  pto_trace(platform, PTO_TRACK_SCHEDULER + thread, PTO_TRACE_COMPLETE, record.payload->task, core);
}

[[gnu::noinline]] void trace_release(const pto_platform* platform, uint32_t thread,
                                     const BuiltTask& record, int32_t successor) {
  pto_record(platform, PTO_TRACK_SCHEDULER + thread, PTO_TRACE_RELEASE, record.payload->task,
             static_cast<uint64_t>(successor));
}

[[gnu::noinline]] void trace_ready(const pto_platform* platform, uint32_t thread,
                                   const BuiltTask& record, int32_t successor) {
  pto_order(platform, PTO_TRACE_READY, static_cast<uint64_t>(successor), thread);
  pto_record(platform, PTO_TRACK_SCHEDULER + thread, PTO_TRACE_READY,
             static_cast<uint64_t>(successor), record.payload->task + 1);
}

}  // namespace

bool Scheduler::create() {
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    if (!released_[type].create(context_.memory)) return false;
    if (!admitted_[type].create(context_.memory)) return false;
  }
  return true;
}

void Scheduler::destroy() {
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    released_[type].destroy();
    admitted_[type].destroy();
  }
}

void Scheduler::begin() {
  threads_ = context_.platform->topology->schedulers;
  is_exclusive_ = threads_ == 1 && !graph_.rules().concurrent;
  build_done_.store(false, std::memory_order_relaxed);
  has_announced_end_.store(false, std::memory_order_relaxed);
  completed_.store(0, std::memory_order_relaxed);
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    hungry_[type].store(0, std::memory_order_relaxed);
    is_sharing_[type].store(0, std::memory_order_relaxed);
    released_[type].restart();
    admitted_[type].restart();
  }
  for (uint32_t thread = 0; thread < threads_; ++thread) begin_lane(thread);
}

void Scheduler::begin_lane(uint32_t thread) {
  const pto_topology& topology = *context_.platform->topology;
  Lane& lane = lanes_[thread];
  lane.thread = thread;
  lane.bit = 1u << thread;
  lane.in_flight = 0;
  lane.counted = 0;
  lane.dispatched.store(0, std::memory_order_relaxed);
  lane.completed.store(0, std::memory_order_relaxed);
  lane.statistics = {};
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    lane.free_count[type] = 0;
    lane.free_cores[type] = {};
    lane.local[type].restart();
  }
  for (uint32_t core = 0; core < topology.cores; ++core) {
    const uint64_t bit = uint64_t{1} << (core % 64);
    if ((topology.thread_cores[thread].words[core / 64] & bit) == 0) continue;
    const uint32_t type = topology.core_type[core];
    lane.free_cores[type].words[core / 64] |= bit;
    ++lane.free_count[type];
  }
}

void Scheduler::admit(int32_t task) {
  const uint32_t type = graph_.record(task).core_type;
  if (!admitted_[type].stage(task)) {
    context_.fail({PTO_ERROR_MEMORY, task}, "no memory to queue ready task ", task,
                  "; build a smaller graph or free memory");
    return;
  }
  admitted_[type].expose();
  wake_hungry(type, 1);
}

void Scheduler::build_done() {
  if (!graph_.rules().concurrent && !context_.latch.is_set()) {
    bool has_space = true;
    graph_.for_each_seed(
        [&](int32_t task, uint32_t type) { has_space &= admitted_[type].stage(task); });
    if (pto_is_traced(context_.platform, PTO_TRACE_TASKS)) trace_seeds(context_.platform, graph_);
    if (!has_space) {
      context_.fail({PTO_ERROR_MEMORY},
                    "no memory to queue the tasks that are ready at the start; "
                    "build a smaller graph or free memory");
    }
    for (SharedReady& queue : admitted_) queue.expose();
  }
  build_done_.store(true, std::memory_order_release);
}

int32_t Scheduler::step(uint32_t thread) {
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  if (!graph_.rules().concurrent && !is_build_done()) return PTO_STEP_IDLE;
  Lane& lane = lanes_[thread];
  engine::PhaseClock phases(context_.platform, thread);
  const uint32_t before = lane.in_flight;
  if (before > 0) collect(lane);
  const uint32_t completed = before - lane.in_flight;
  const bool has_completed = completed > 0;
  phases.end(PTO_TRACE_COLLECT, completed);
  const uint32_t dispatched = fill_cores(lane);
  phases.end(PTO_TRACE_FILL, dispatched);
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  if (dispatched > 0 || (has_completed && lane.in_flight > 0)) return PTO_STEP_PROGRESS;
  return rest(lane, has_completed);
}

void Scheduler::collect(Lane& lane) {
  pto_poll_result result = {};
  context_.platform->poll(context_.platform->self, lane.thread, &result);
  if (latch_fault(result.faulted, lane)) return;
  for (uint32_t word = 0; word < 2; ++word) {
    for (uint64_t done = result.done.words[word]; done != 0; done &= done - 1) {
      complete(lane, word * 64 + static_cast<uint32_t>(__builtin_ctzll(done)));
    }
  }
  const int64_t completed = static_cast<int64_t>(lane.statistics.dispatches) - lane.in_flight;
  lane.completed.store(completed, std::memory_order_relaxed);
}

bool Scheduler::latch_fault(const pto_core_mask& faulted, const Lane& lane) {
  if ((faulted.words[0] | faulted.words[1]) == 0) return false;
  const uint32_t word = faulted.words[0] != 0 ? 0 : 1;
  const uint32_t core = word * 64 + static_cast<uint32_t>(__builtin_ctzll(faulted.words[word]));
  const pto_payload& payload = *lane.running[core]->payload;
  pto_error error = {};
  error.line = -1;
  error.other_task = -1;
  context_.platform->fault(context_.platform->self, core, &error);
  if (error.status == PTO_OK) error.status = PTO_ERROR_KERNEL;
  error.task = static_cast<int64_t>(payload.task);
  error.func_id = payload.func_id;
  error.core = static_cast<int32_t>(core);
  if (error.message[0] == '\0') {
    Text(error.message, sizeof error.message)
        .add("task ", payload.task, " (function ", payload.func_id, ") failed on core ", core);
  }
  context_.latch.latch(error);
  return true;
}

void Scheduler::complete(Lane& lane, uint32_t core) {
  const pto_platform* platform = context_.platform;
  BuiltTask& record = *lane.running[core];
  const uint32_t type = record.core_type;
  lane.free_cores[type].words[core / 64] |= uint64_t{1} << (core % 64);
  ++lane.free_count[type];
  --lane.in_flight;
  if (platform->timing) record.end_time = platform->now(platform->self);
  const bool is_traced = pto_is_traced(platform, ~0u) != 0;
  if (is_traced) trace_complete(platform, lane.thread, record, core);
  pto_yield(platform, PTO_YIELD_COMPLETE);
  graph_.for_each_successor(record, close(record), [&](int32_t successor) {
    BuiltTask& waiting = graph_.record(successor);
    if (is_traced) trace_release(platform, lane.thread, record, successor);
    if (release(waiting)) {
      lane.local[waiting.core_type].push(graph_, successor);
      if (is_traced) trace_ready(platform, lane.thread, record, successor);
    }
    pto_yield(platform, PTO_YIELD_RELEASE);
  });
}

// Marks the task as completed, so that edges that are added later do not count. Returns the number
// of edges that count.
uint32_t Scheduler::close(BuiltTask& record) {
  if (graph_.rules().concurrent) {
    return record.fanout.fetch_or(kClosed, std::memory_order_acq_rel);
  }
  const uint32_t fanout = record.fanout.load(std::memory_order_relaxed);
  record.fanout.store(fanout | kClosed, std::memory_order_relaxed);
  return fanout;
}

// Counts one predecessor as completed. Returns true if it was the last one.
bool Scheduler::release(BuiltTask& record) {
  int32_t waits;
  if (is_exclusive_) {
    waits = record.fanin.load(std::memory_order_relaxed);
    record.fanin.store(waits - 1, std::memory_order_relaxed);
  } else {
    waits = record.fanin.fetch_sub(1, std::memory_order_acq_rel);
  }
#ifdef PTO_PLANT_LOST_EDGE
  if (record.fanin_count > 1) return waits == 2;
#endif
  return waits == 1;
}

uint32_t Scheduler::fill_cores(Lane& lane) {
  uint32_t count = 0;
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    if (lane.free_count[type] == 0) continue;
    int32_t tasks[PTO_MAX_CORES];
    const uint32_t taken = take_ready(lane, type, tasks);
    count += put_on_cores(lane, type, tasks, taken, lane.batch + count);
  }
  if (count > 0) {
    lane.in_flight += count;
    lane.statistics.dispatches += count;
    ++lane.statistics.batches;
    lane.dispatched.store(static_cast<int64_t>(lane.statistics.dispatches),
                          std::memory_order_relaxed);
    context_.platform->dispatch(context_.platform->self, lane.thread, lane.batch, count);
  }
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    if (lane.free_count[type] == 0) leave_hungry(lane, type);
  }
  return count;
}

uint32_t Scheduler::take_ready(Lane& lane, uint32_t type, int32_t* tasks) {
  const uint32_t limit = lane.free_count[type];
  LocalReady& local = lane.local[type];
  const uint32_t waiting = released_[type].size() + admitted_[type].size() + local.size();
  if (waiting == 0) return 0;
  if (waiting > lane.statistics.ready_peak) lane.statistics.ready_peak = waiting;
  uint32_t count = released_[type].claim(tasks, limit);
  lane.statistics.taken += count;
  while (count < limit && local.size() > 0) tasks[count++] = local.pop(graph_);
  const uint32_t admitted = admitted_[type].claim(tasks + count, limit - count);
  lane.statistics.taken += admitted;
  return count + admitted;
}

uint32_t Scheduler::put_on_cores(Lane& lane, uint32_t type, const int32_t* tasks, uint32_t count,
                                 pto_dispatch* batch) {
  const pto_platform* platform = context_.platform;
  for (uint32_t i = 0; i < count; ++i) __builtin_prefetch(&graph_.record(tasks[i]), 1);
  const uint64_t now = platform->timing && count > 0 ? platform->now(platform->self) : 0;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t* words = lane.free_cores[type].words;
    const uint32_t word = words[0] != 0 ? 0 : 1;
    const uint32_t core = word * 64 + static_cast<uint32_t>(__builtin_ctzll(words[word]));
    words[word] &= words[word] - 1;
    BuiltTask& record = graph_.record(tasks[i]);
    __builtin_prefetch(record.payload);
    if (platform->timing) record.start_time = now;
    lane.running[core] = &record;
    batch[i] = {core, record.payload_length, 0, record.payload};
  }
  lane.free_count[type] -= count;
  return count;
}

// Called when the lane has no free core of this type. Leaves the remaining tasks to other
// schedulers.
void Scheduler::leave_hungry(Lane& lane, uint32_t type) {
  if (hungry_[type].load(std::memory_order_relaxed) & lane.bit) {
    hungry_[type].fetch_and(~lane.bit, std::memory_order_relaxed);
  }
  if (threads_ == 1) return;
  if (lane.local[type].size() > 0) share(lane, type);
  if (has_shared(type)) wake_hungry(type, released_[type].size() + admitted_[type].size());
}

// Moves the local tasks to the shared queue. Does nothing while another scheduler does the same;
// the tasks then wait for the next step.
void Scheduler::share(Lane& lane, uint32_t type) {
  if (is_sharing_[type].exchange(1, std::memory_order_acquire) != 0) return;
  LocalReady& local = lane.local[type];
  const uint32_t count = local.size();
  bool has_space = true;
  while (has_space && local.size() > 0) has_space = released_[type].stage(local.pop(graph_));
  released_[type].expose();
  is_sharing_[type].store(0, std::memory_order_release);
  if (!has_space) {
    context_.fail({PTO_ERROR_MEMORY},
                  "no memory to queue ready tasks; build a smaller graph or "
                  "free memory");
  }
  lane.statistics.shared += count;
}

int32_t Scheduler::rest(Lane& lane, bool has_progress) {
  if (is_complete(lane)) return PTO_STEP_DONE;
  bool has_work = has_progress;
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    has_work |= lane.local[type].size() > 0 && threads_ > 1;
    if (lane.free_count[type] == 0) continue;
    if ((hungry_[type].load(std::memory_order_relaxed) & lane.bit) == 0) {
      hungry_[type].fetch_or(lane.bit, std::memory_order_seq_cst);
    }
    has_work |= has_shared(type);
  }
  return has_work ? PTO_STEP_PROGRESS : PTO_STEP_IDLE;
}

// Returns whether the run is complete. Each scheduler adds its own completions before it reads the
// total, so the scheduler that adds the last completion sees the full total.
bool Scheduler::is_complete(Lane& lane) {
  if (lane.in_flight > 0) return false;
  const int64_t completed = lane.completed.load(std::memory_order_relaxed);
  if (completed != lane.counted) {
    completed_.fetch_add(completed - lane.counted, std::memory_order_acq_rel);
    lane.counted = completed;
  }
  if (!is_build_done() || completed_.load(std::memory_order_acquire) != graph_.task_count()) {
    return false;
  }
  if (!has_announced_end_.exchange(true, std::memory_order_relaxed)) wake_all();
  return true;
}

void Scheduler::wake_hungry(uint32_t type, uint32_t tasks) {
  uint32_t hungry = hungry_[type].load(std::memory_order_seq_cst);
  for (; hungry != 0 && tasks > 0; hungry &= hungry - 1, --tasks) {
    const uint32_t thread = static_cast<uint32_t>(__builtin_ctz(hungry));
    hungry_[type].fetch_and(~(1u << thread), std::memory_order_relaxed);
    context_.platform->wake(context_.platform->self, thread);
  }
}

void Scheduler::wake_all() {
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    context_.platform->wake(context_.platform->self, thread);
  }
}

bool Scheduler::has_shared(uint32_t type) const {
  return released_[type].has_work() || admitted_[type].has_work();
}

bool Scheduler::has_ready_task() const {
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    if (has_shared(type)) return true;
    for (const Lane& lane : lanes_) {
      if (lane.thread < threads_ && lane.local[type].size() > 0) return true;
    }
  }
  return false;
}

Progress Scheduler::progress() const {
  Progress total{};
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    total.completed += lanes_[thread].completed.load(std::memory_order_relaxed);
    total.dispatched += lanes_[thread].dispatched.load(std::memory_order_relaxed);
  }
  return total;
}

}  // namespace pto::build_graph
