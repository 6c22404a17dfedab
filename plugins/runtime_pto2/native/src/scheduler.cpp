#include "scheduler.hpp"

#include <cstring>

#include "pto/engine/phase_clock.hpp"

namespace pto::ring_buffer {
bool Scheduler::create(uint32_t shards) {
  ready_.create(shards);
  for (Lane& lane : lanes_) {
    lane.scratch = static_cast<char*>(context_.memory.reserve(Dispatcher::kScratchBytes));
    if (lane.scratch == nullptr) return false;
  }
  return true;
}

void Scheduler::destroy() {
  for (Lane& lane : lanes_) context_.memory.release(lane.scratch, Dispatcher::kScratchBytes);
}

void Scheduler::begin() {
  threads_ = context_.platform->topology->schedulers;
  build_done_.store(false, std::memory_order_relaxed);
  is_halted_.store(false, std::memory_order_relaxed);
  has_announced_end_.store(false, std::memory_order_relaxed);
  completed_.store(0, std::memory_order_relaxed);
  resting_.begin(threads_);
  ready_.begin();
  completion_.begin(threads_ == 1);
  wiring_.begin(threads_ == 1);
  for (uint32_t thread = 0; thread < threads_; ++thread) begin_lane(thread);
}

void Scheduler::begin_lane(uint32_t thread) {
  const pto_topology& topology = *context_.platform->topology;
  Lane& lane = lanes_[thread];
  lane.thread = thread;
  lane.in_flight = lane.batched = lane.used = 0;
  lane.is_eager = false;
  lane.counted = 0;
  lane.dispatched.store(0, std::memory_order_relaxed);
  lane.completed.store(0, std::memory_order_relaxed);
  lane.statistics = {};
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    lane.fills[type] = 0;
    lane.free_count[type] = 0;
    lane.free_cores[type] = {};
  }
  for (uint32_t core = 0; core < topology.cores; ++core) {
    if (contains(topology.thread_cores[thread], core)) dispatcher_.free_core(lane, core);
  }
}

void Scheduler::build_done() {
  build_done_.store(true, std::memory_order_release);
  wake_all();
}

void Scheduler::synchronise() const {
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    lanes_[thread].completed.load(std::memory_order_seq_cst);
  }
}

int32_t Scheduler::step(uint32_t thread) {
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  if (is_halted_.load(std::memory_order_relaxed)) return PTO_STEP_IDLE;
  Lane& lane = lanes_[thread];
  resting_.leave(thread);
  PhaseClock phases(context_.platform, thread);
  const uint32_t before = lane.in_flight;
  uint32_t rings = before > 0 ? collect(lane) : 0;
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  const uint32_t completed = before - lane.in_flight;
  const bool has_completed = completed > 0;
  phases.end(PTO_TRACE_COLLECT, completed);
  const Wiring::Step wired = wiring_.step(thread, lane.is_eager, lane.statistics);
  rings |= wired.rings;
  phases.end(PTO_TRACE_WIRE, wired.wired);
  ready_.receive(thread);
  const uint32_t in_flight = lane.in_flight;
  const bool has_dispatched = dispatcher_.fill_cores(lane);
  phases.end(PTO_TRACE_FILL, lane.in_flight - in_flight);
  uint32_t retired = 0;
  for (; rings != 0; rings &= rings - 1) {
    retired += completion_.retire(static_cast<uint32_t>(__builtin_ctz(rings)));
  }
  phases.end(PTO_TRACE_RETIRE, retired);
  lane.statistics.retired += retired;
  // Signal also after wiring: the orchestrator may wait for a task that another lane completed
  // while this lane was still wiring its batch. Until then the orchestrator ignores the state of
  // such a task.
  const bool has_wired = wired.wired > 0 && threads_ > 1;
  if (has_completed || has_wired || retired > 0) signal_orchestrator(lane);
  lane.is_eager = false;
  if (has_dispatched) return PTO_STEP_PROGRESS;
  return rest(lane, has_completed || wired.wired > 0 || retired > 0);
}

// Collect the completed tasks of the lane's cores. Return, as bits, the rings in which a task may
// be able to retire now.
uint32_t Scheduler::collect(Lane& lane) {
  pto_poll_result result = {};
  context_.platform->poll(context_.platform->self, lane.thread, &result);
  if (latch_fault(result.faulted, lane)) return 0;
  uint32_t rings = 0;
  int64_t completed = lane.completed.load(std::memory_order_relaxed);
  for (uint32_t word = 0; word < 2; ++word) {
    for (uint64_t done = result.done.words[word]; done != 0; done &= done - 1) {
      const uint32_t core = word * 64 + static_cast<uint32_t>(__builtin_ctzll(done));
      dispatcher_.free_core(lane, core);
      rings |= completion_.complete(lane.thread, lane.running[core], core);
      --lane.in_flight;
      ++completed;
    }
  }
  lane.completed.store(completed, std::memory_order_relaxed);
  return rings;
}

// Prefix the message with the position of the submit, and with the name of the task if the message
// does not contain it.
void Scheduler::name_fault(pto_error& error) {
  const pto_error told = error;
  Text text(error.message, sizeof error.message);
  if (told.line >= 0) {
    const char* slash = std::strrchr(told.file, '/');
    text.add(slash != nullptr ? slash + 1 : told.file, ":", told.line, ": ");
  }
  char name[64];
  Text(name, sizeof name).add(TaskName{told.task});
  if (told.message[0] == '\0') {
    text.add(name, " (function ", told.func_id, ") failed on core ", told.core);
  } else if (std::strstr(told.message, name) != nullptr) {
    text.add(static_cast<const char*>(told.message));
  } else {
    text.add(name, ": ", static_cast<const char*>(told.message));
  }
}

bool Scheduler::latch_fault(const pto_core_mask& faulted, const Lane& lane) {
  if ((faulted.words[0] | faulted.words[1]) == 0) return false;
  const uint32_t core = first_of(faulted);
  const SlotRef task = lane.running[core];
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  const int64_t id = descriptor.id;
  const int32_t func_id = descriptor.payload->func_id;
  const SlotRef head = descriptor.block_dim > 0 ? descriptor.head : task;
  const TaskRecord& record = rings_.ring[ring_of(head)].records[slot_of(head)];
  pto_error error = {};
  error.other_task = -1;
  context_.platform->fault(context_.platform->self, core, &error);
  if (error.status == PTO_OK) error.status = PTO_ERROR_KERNEL;
  error.task = id;
  error.func_id = func_id;
  error.core = static_cast<int32_t>(core);
  error.line = record.file != nullptr ? record.line : -1;
  Text(error.file, sizeof error.file).add(record.file != nullptr ? record.file : "");
  move<Event::kFail>(rings_.state(task).phase);
  name_fault(error);
  context_.latch.latch(error);
  return true;
}

// Signal a waiting orchestrator. It waits for a change of a watermark, of `wired` or of a phase.
// This step has stored these values before its seq_cst store below, which precedes its check of
// `waiting`. The orchestrator reads them after synchronise().
void Scheduler::signal_orchestrator(Lane& lane) {
  const int64_t completed = lane.completed.load(std::memory_order_relaxed);
  lane.completed.store(completed, std::memory_order_seq_cst);
  if (rings_.waiting.load(std::memory_order_seq_cst) == 0) return;
  rings_.wake_orchestrator(context_.platform);
}

int32_t Scheduler::rest(Lane& lane, bool has_progress) {
  if (is_complete(lane)) return PTO_STEP_DONE;
  if (has_progress) return PTO_STEP_PROGRESS;
  uint32_t free_types = 0;
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    if (lane.free_count[type] > 0) free_types |= 1u << type;
  }
  resting_.enter(lane.thread, free_types);
#ifdef PTO_PLANT_LOST_WAKEUP
  return PTO_STEP_IDLE;
#else
  lane.is_eager = true;
  return finds_work(lane) ? PTO_STEP_PROGRESS : PTO_STEP_IDLE;
#endif
}

// Return whether the lane would find work. Work of the stream does not count while another thread
// wires it, because that thread checks again before it becomes idle.
bool Scheduler::finds_work(const Lane& lane) const {
  if (wiring_.has_news(true) && !wiring_.is_at_work()) return true;
  if (ready_.has_mail(lane.thread)) return true;
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    if (lane.free_count[type] > 0 ? ready_.has_shared(type) || ready_.has_local(lane.thread, type)
                                  : threads_ > 1 && ready_.has_local(lane.thread, type)) {
      return true;
    }
  }
  return false;
}

// Return whether the run is complete. Each lane adds its own completions before this check, so the
// last lane that runs out of work sees all completions.
bool Scheduler::is_complete(Lane& lane) {
  if (lane.in_flight > 0) return false;
  const int64_t completed = lane.completed.load(std::memory_order_relaxed);
  if (completed != lane.counted) {
    completed_.fetch_add(completed - lane.counted, std::memory_order_acq_rel);
    lane.counted = completed;
  }
  if (!is_build_done() || wiring_.has_news(false) ||
      completed_.load(std::memory_order_acquire) != wiring_.tasks()) {
    return false;
  }
  if (!has_announced_end_.exchange(true, std::memory_order_relaxed)) wake_all();
  return true;
}

void Scheduler::wake_all() {
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    context_.platform->wake(context_.platform->self, thread);
  }
}

bool Scheduler::has_work() const {
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    if (finds_work(lanes_[thread])) return true;
  }
  return false;
}

Progress Scheduler::progress() const {
  Progress total{};
  total.wired = wiring_.tasks();
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    total.dispatched += lanes_[thread].dispatched.load(std::memory_order_relaxed);
    total.completed += lanes_[thread].completed.load(std::memory_order_relaxed);
  }
  return total;
}

}  // namespace pto::ring_buffer
