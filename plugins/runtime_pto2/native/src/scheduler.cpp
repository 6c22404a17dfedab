#include "scheduler.hpp"

#include <cstring>

namespace pto::ring_buffer {
namespace {

// Room for the payloads of the blocks in one batch; a full one goes out early.
constexpr uint32_t kScratchBytes = 64 * 1024;
static_assert(kScratchBytes >= PTO_MAX_PAYLOAD, "one payload always fits");

constexpr uint32_t kLine = 64;

bool contains(const pto_core_mask& mask, uint32_t core) {
  return (mask.words[core / 64] >> (core % 64) & 1) != 0;
}

uint32_t first_of(const pto_core_mask& mask) {
  const uint32_t word = mask.words[0] != 0 ? 0 : 1;
  return word * 64 + static_cast<uint32_t>(__builtin_ctzll(mask.words[word]));
}

}  // namespace

bool Scheduler::create(uint32_t shards) {
  ready_.create(shards);
  for (Lane& lane : lanes_) {
    lane.scratch = static_cast<char*>(context_.memory.reserve(kScratchBytes));
    if (lane.scratch == nullptr) return false;
  }
  return true;
}

void Scheduler::destroy() {
  for (Lane& lane : lanes_) context_.memory.release(lane.scratch, kScratchBytes);
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
    if (contains(topology.thread_cores[thread], core)) free_core(lane, core);
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
  const uint32_t before = lane.in_flight;
  uint32_t rings = before > 0 ? collect(lane) : 0;
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  const bool has_completed = lane.in_flight != before;
  const Wiring::Step wired = wiring_.step(thread, lane.is_eager, lane.statistics);
  rings |= wired.rings;
  ready_.receive(thread);
  const bool has_dispatched = fill_cores(lane);
  uint32_t retired = 0;
  for (; rings != 0; rings &= rings - 1) {
    retired += completion_.retire(static_cast<uint32_t>(__builtin_ctz(rings)));
  }
  lane.statistics.retired += retired;
  // Another lane may have completed what this one was wiring, when its state still meant nothing.
  const bool has_wired = wired.wired > 0 && threads_ > 1;
  if (has_completed || has_wired || retired > 0) signal_orchestrator(lane);
  lane.is_eager = false;
  if (has_dispatched) return PTO_STEP_PROGRESS;
  return rest(lane, has_completed || wired.wired > 0 || retired > 0);
}

// Gives the rings, by bit, in which a task may be able to retire now.
uint32_t Scheduler::collect(Lane& lane) {
  pto_poll_result result = {};
  context_.platform->poll(context_.platform->self, lane.thread, &result);
  if (latch_fault(result.faulted, lane)) return 0;
  uint32_t rings = 0;
  int64_t completed = lane.completed.load(std::memory_order_relaxed);
  for (uint32_t word = 0; word < 2; ++word) {
    for (uint64_t done = result.done.words[word]; done != 0; done &= done - 1) {
      const uint32_t core = word * 64 + static_cast<uint32_t>(__builtin_ctzll(done));
      free_core(lane, core);
      rings |= completion_.complete(lane.thread, lane.running[core], core);
      --lane.in_flight;
      ++completed;
    }
  }
  lane.completed.store(completed, std::memory_order_relaxed);
  return rings;
}

// Platforms know a task by its id alone.
void Scheduler::name_fault(pto_error& error) {
  const pto_error told = error;
  Text text(error.message, sizeof error.message);
  if (told.line >= 0) {
    const char* slash = std::strrchr(told.file, '/');
    text.add(slash != nullptr ? slash + 1 : told.file, ":", told.line, ": ");
  }
  text.add(TaskName{told.task});
  if (told.message[0] != '\0') {
    text.add(": ", static_cast<const char*>(told.message));
  } else {
    text.add(" (function ", told.func_id, ") failed on core ", told.core);
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

void Scheduler::free_core(Lane& lane, uint32_t core) {
  const uint32_t type = context_.platform->topology->core_type[core];
  lane.free_cores[type].words[core / 64] |= uint64_t{1} << (core % 64);
  ++lane.free_count[type];
}

bool Scheduler::fill_cores(Lane& lane) {
  const int64_t before = lane.dispatched.load(std::memory_order_relaxed);
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    const uint32_t free_count = lane.free_count[type];
    if (free_count == 0) continue;
    const bool others_first = (lane.fills[type] + 1) % Ready::kFairTurn == 0;
    if (!others_first) fill_pinned(lane, type);
    fill_unpinned(lane, type, others_first);
    if (others_first) fill_pinned(lane, type);
    if (lane.free_count[type] != free_count) ++lane.fills[type];
  }
  if (lane.batched > 0) dispatch(lane);
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    if (lane.free_count[type] == 0) ready_.leave(lane.thread, type, lane.statistics);
  }
  return lane.dispatched.load(std::memory_order_relaxed) != before;
}

void Scheduler::fill_unpinned(Lane& lane, uint32_t type, bool others_first) {
  const uint32_t limit = lane.free_count[type];
  if (limit == 0) return;
  SlotRef tasks[PTO_MAX_CORES];
  const uint32_t count =
      ready_.take(lane.thread, type, others_first, limit, tasks, lane.statistics);
  for (uint32_t i = 0; i < count; ++i) __builtin_prefetch(&rings_.descriptor(tasks[i]));
  for (uint32_t i = 0; i < count; ++i) prefetch_payload(tasks[i]);
  for (uint32_t i = 0; i < count; ++i) {
    put_on_core(lane, type, first_of(lane.free_cores[type]), tasks[i]);
  }
}

void Scheduler::prefetch_payload(SlotRef task) const {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  const char* payload = reinterpret_cast<const char*>(descriptor.payload);
  for (uint32_t at = 0; at < descriptor.payload_length; at += kLine) {
    __builtin_prefetch(payload + at);
  }
}

void Scheduler::fill_pinned(Lane& lane, uint32_t type) {
  const uint32_t blocks = context_.platform->topology->blocks;
  for (uint32_t rest = ready_.pinned(lane.thread, type); rest != 0; rest &= rest - 1) {
    const uint32_t cluster = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint32_t first = type == PTO_CORE_AIC ? cluster : blocks + 2 * cluster;
    const uint32_t end = first + (type == PTO_CORE_AIC ? 1 : 2);
    for (uint32_t core = first; core < end; ++core) {
      if (!contains(lane.free_cores[type], core)) continue;
      if ((ready_.pinned(lane.thread, type) >> cluster & 1) == 0) break;
      put_on_core(lane, type, core, ready_.take_pinned(lane.thread, type, cluster));
      ++lane.statistics.pinned;
    }
  }
}

void Scheduler::put_on_core(Lane& lane, uint32_t type, uint32_t core, SlotRef task) {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  const uint32_t length = descriptor.payload_length;
  const pto_payload* payload = descriptor.payload;
  if (descriptor.block_dim > 0) {
    if (lane.used + length > kScratchBytes) dispatch(lane);
    payload = block_payload(lane, descriptor);
  }
  move<Event::kDispatch>(rings_.state(task).phase);
  lane.free_cores[type].words[core / 64] &= ~(uint64_t{1} << (core % 64));
  --lane.free_count[type];
  lane.running[core] = task;
  lane.batch[lane.batched++] = {core, length, payload};
}

const pto_payload* Scheduler::block_payload(Lane& lane, const TaskDescriptor& descriptor) {
  const uint32_t length = descriptor.payload_length;
  auto* payload = reinterpret_cast<pto_payload*>(lane.scratch + lane.used);
  lane.used += (length + kLine - 1) & ~(kLine - 1);
  std::memcpy(payload, descriptor.payload, length);
  payload->task = static_cast<uint64_t>(descriptor.id);
  pto_payload_args(payload)[descriptor.block_id_arg] = descriptor.block_id;
  return payload;
}

void Scheduler::dispatch(Lane& lane) {
  const uint32_t count = lane.batched;
  lane.in_flight += count;
  lane.statistics.dispatches += count;
  ++lane.statistics.batches;
  lane.dispatched.store(static_cast<int64_t>(lane.statistics.dispatches),
                        std::memory_order_relaxed);
  context_.platform->dispatch(context_.platform->self, lane.thread, lane.batch, count);
  lane.batched = lane.used = 0;
}

// It waits for a watermark, for `wired` or for phases: what this step stored, before the store that
// meets `waiting` and that synchronise() reads.
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

// Whoever wires at this moment looks again before it rests, so its news are no news to others.
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

// The last lane that runs dry sees every completion, as each adds its own before it looks.
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
