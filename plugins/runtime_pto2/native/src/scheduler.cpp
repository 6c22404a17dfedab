#include "scheduler.hpp"

#include <cstring>

#include "alone.hpp"
#include "pto/engine/phase_clock.hpp"
#include "states.hpp"

namespace pto::ring_buffer {
namespace {

// How many submits in advance the cache lines of a task are prefetched. The descriptor is needed to
// find the edges, and the edges to find the producers.
constexpr uint64_t kDescriptorAhead = 12;
constexpr uint64_t kEdgeAhead = 6;
constexpr uint64_t kProducerAhead = 3;

}  // namespace

void Wiring::begin(bool alone) {
  alone_ = alone;
  is_locked_.store(0, std::memory_order_relaxed);
  tasks_.store(0, std::memory_order_relaxed);
  at_ = known_ = 0;
  rings_.wired.store(0, std::memory_order_relaxed);
  for (uint32_t index = 0; index < kRings; ++index) {
    ended_[index] = released_[index] = next_[index] = 0;
    rings_.ring[index].watermark.store(0, std::memory_order_relaxed);
    rings_.ring[index].releasable.store(0, std::memory_order_relaxed);
    rings_.ring[index].retiring.store(0, std::memory_order_relaxed);
  }
}

bool Wiring::has_news(bool eager) const {
  for (const TaskRing& ring : rings_.ring) {
    if (ring.scope_released.load(std::memory_order_seq_cst) !=
        ring.releasable.load(std::memory_order_relaxed)) {
      return true;
    }
  }
  // Acquire order, because a thread that finds all submits connected then reads tasks().
  const uint64_t wired = rings_.wired.load(std::memory_order_acquire);
  return rings_.submitted.load(std::memory_order_seq_cst) > wired ||
         (eager && rings_.logged.load(std::memory_order_seq_cst) > wired);
}

Wiring::Step Wiring::step(uint32_t thread, bool eager, LaneStatistics& statistics) {
  if (!alone_ && (!has_news(eager) || is_at_work() ||
                  is_locked_.exchange(1, std::memory_order_acquire) != 0)) {
    return {};
  }
  Step step{};
  if (at_ == known_) look(eager);
  if (at_ != known_) step.wired = wire_batch(thread, statistics);
  if (at_ == known_) step.rings = release_rings();
  if (!alone_) is_locked_.store(0, std::memory_order_release);
  return step;
}

// Read how far the stream has advanced. The order of these reads matters: it ensures that every
// submit that names a buffer of an ended scope is among the submits read here.
void Wiring::look(bool eager) {
  for (uint32_t index = 0; index < kRings; ++index) {
    ended_[index] = rings_.ring[index].scope_released.load(std::memory_order_acquire);
  }
  const uint64_t submitted = rings_.submitted.load(std::memory_order_acquire);
  if (submitted > known_) known_ = submitted;
  if (!eager) return;
  const uint64_t logged = rings_.logged.load(std::memory_order_acquire);
  if (logged > known_) known_ = logged;
}

uint32_t Wiring::release_rings() {
  uint32_t rings = 0;
  for (uint32_t index = 0; index < kRings; ++index) {
    if (released_[index] == ended_[index]) continue;
    released_[index] = ended_[index];
    swap(rings_.ring[index].releasable, ended_[index], alone_);
    rings |= 1u << index;
  }
  return rings;
}

uint32_t Wiring::wire_batch(uint32_t thread, LaneStatistics& statistics) {
  const uint64_t first = at_;
  const uint64_t end = known_ - at_ < kBatch ? known_ : at_ + kBatch;
  int64_t tasks = tasks_.load(std::memory_order_relaxed);
  for (; at_ != end; ++at_) {
    prefetch(at_);
    tasks += wire(thread, rings_.log[at_ & (rings_.log_size - 1)], statistics);
  }
  tasks_.store(tasks, std::memory_order_relaxed);
  rings_.wired.store(at_, std::memory_order_release);
  statistics.wired += end - first;
  return static_cast<uint32_t>(end - first);
}

// Another core has just written the submits, so without a prefetch the access to each cache line
// would take long.
void Wiring::prefetch(uint64_t position) {
  const uint64_t mask = rings_.log_size - 1;
  if (position + kDescriptorAhead < known_) {
    const SlotRef task = rings_.log[(position + kDescriptorAhead) & mask];
    __builtin_prefetch(&rings_.descriptor(task));
    __builtin_prefetch(&rings_.state(task), 1);
  }
  if (position + kEdgeAhead < known_) {
    const SlotRef task = rings_.log[(position + kEdgeAhead) & mask];
    __builtin_prefetch(&rings_.edge(rings_.descriptor(task).first_edge), 1);
  }
  if (position + kProducerAhead < known_) {
    const SlotRef task = rings_.log[(position + kProducerAhead) & mask];
    const TaskDescriptor& descriptor = rings_.descriptor(task);
    if (descriptor.edge_count == 0) return;
    __builtin_prefetch(&rings_.state(rings_.edge(descriptor.first_edge).producer), 1);
  }
}

// Connect a submit. Return its number of tasks: the number of blocks, or 1.
uint32_t Wiring::wire(uint32_t thread, SlotRef head, LaneStatistics& statistics) {
  const TaskDescriptor& descriptor = rings_.descriptor(head);
  const TaskRing& ring = rings_.ring[ring_of(head)];
  const int64_t number = TaskId::of(descriptor.id).number;
  const uint32_t count = descriptor.block_dim > 0 ? descriptor.block_dim : 1;
  init(ring, number, descriptor);
  for (uint32_t block = 1; block < descriptor.block_dim; ++block) {
    init(ring, number + block, ring.descriptor(number + block));
  }
  next_[ring_of(head)] = number + count;
  if (connect(rings_.state(head), descriptor, statistics)) {
    ++statistics.early_ready;
    ready_.add(thread, head);
  }
  return count;
}

void Wiring::init(const TaskRing& ring, int64_t number, const TaskDescriptor& descriptor) {
  RingTaskState& state = ring.state(number);
#ifdef PTO_CHECK_STATES
  // Until the ring wraps around, the slots still contain data of the previous run.
  if (number >= ring.window && !may_follow(state.phase.load(), Event::kWire)) __builtin_trap();
#endif
  state.fanout.store(kNoEdge, std::memory_order_relaxed);
  state.held.store(0, std::memory_order_relaxed);
  state.released.store(0, std::memory_order_relaxed);
  state.phase.store(target(Event::kWire), std::memory_order_relaxed);
  state.traits = descriptor.traits | static_cast<uint32_t>(descriptor.cluster + 1) << kClusterShift;
  if (descriptor.block_dim > 0) {
    state.traits |= kIsBlock;
    state.blocks_left.store(descriptor.block_dim, std::memory_order_relaxed);
  }
}

// Connect a task to its producers. Return whether all producers have completed.
bool Wiring::connect(RingTaskState& state, const TaskDescriptor& descriptor,
                     LaneStatistics& statistics) {
  const uint32_t orders = hold(descriptor);
  if (orders == 0) return true;
  statistics.edges += orders;
  state.waits.store(orders, std::memory_order_relaxed);
  uint32_t satisfied = 0;
  EdgeRef last = kNoEdge;
  for (EdgeRef ref = descriptor.first_edge, rest = orders; rest > 0; ++ref) {
    if ((rings_.edge(ref).kind & kOrders) == 0) continue;
    if (--rest == 0) {
      last = ref;
    } else if (!push(ref)) {
      ++satisfied;
    }
  }
  statistics.edges_satisfied += satisfied;
  if (satisfied > 0) add(state.waits, 0 - satisfied, alone_);
  if (push(last)) return false;
  ++statistics.edges_satisfied;
#ifdef PTO_PLANT_DOUBLE_COUNT
  return add(state.waits, ~uint32_t{1}, alone_) <= 2;
#else
  return take_last(state.waits, alone_);
#endif
}

// Count the task at each producer that it holds. Return the number of ordering edges.
uint32_t Wiring::hold(const TaskDescriptor& descriptor) {
  uint32_t count = descriptor.edge_count;
#ifdef PTO_PLANT_TRUNCATED_FANIN
  for (; count > 8; --count) rings_.edge(descriptor.first_edge + count - 1).kind = 0;
#endif
  uint32_t orders = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Edge& edge = rings_.edge(descriptor.first_edge + i);
    orders += edge.kind & kOrders;
    if ((edge.kind & kHolds) == 0) continue;
    if (is_scope_open(edge.producer)) {
      std::atomic<uint32_t>& held = rings_.state(edge.producer).held;
      held.store(held.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    } else {
      edge.kind &= ~uint32_t{kHolds};
    }
  }
  return orders;
}

// Return whether the scope of the task is open, according to the part of the stream that this
// thread has read. The task is always the newest task of its slot: the orchestrator reuses a slot
// only after it has seen the slot retire, and then creates no more edges from the old task.
bool Wiring::is_scope_open(SlotRef task) const {
  const uint32_t index = ring_of(task);
  const TaskRing& ring = rings_.ring[index];
  const int64_t newest = next_[index] - 1;
  const int64_t number = newest - ((ring.slot(newest) - slot_of(task)) & (ring.window - 1));
  return number >= released_[index];
}

// Append the edge to the fan-out list of its producer. Return false if the producer has already
// completed.
bool Wiring::push(EdgeRef ref) {
  Edge& edge = rings_.edge(ref);
  std::atomic<EdgeRef>& fanout = rings_.state(edge.producer).fanout;
  EdgeRef first = fanout.load(std::memory_order_acquire);
  do {
    if (first == kClosed) return false;
    edge.next = first;
  } while (!replace(fanout, first, ref, alone_));
  return true;
}

uint32_t Completion::complete(uint32_t thread, SlotRef task, uint32_t core) {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  RingTaskState& state = rings_.state(task);
  const int32_t cluster = descriptor.cluster;
  const bool is_block = (state.traits & kIsBlock) != 0;
  const bool is_on_lanes = (state.traits & (kIsMixed | kIsDummy)) == kIsMixed;
  if (is_on_lanes && !take_last(state.waits, true)) return 0;  // all lanes belong to this thread
  move<Event::kFinish>(state.phase);
  pto_trace(context_.platform, PTO_TRACK_SCHEDULER + thread, PTO_TRACE_COMPLETE,
            static_cast<uint64_t>(descriptor.id), core);
  pto_yield(context_.platform, PTO_YIELD_COMPLETE);
  uint32_t rings = 1u << ring_of(task);
  if (!is_block) {
    rings |= finish(thread, task);
  } else {
    const SlotRef head = descriptor.head;
    const bool is_last = take_last(rings_.state(head).blocks_left, alone_);
    if (task != head) done(state);
    if (is_last) rings |= finish(thread, head);
  }
  if (cluster >= 0) clusters_.completed(cluster);
  return rings;
}

// After this call, the slot may retire and another task may take it at any time.
void Completion::done(RingTaskState& state) {
  move<Event::kRelease>(state.phase, std::memory_order_release);
}

uint32_t Completion::finish(uint32_t thread, SlotRef task) {
  RingTaskState& state = rings_.state(task);
  const EdgeRef fanout = swap(state.fanout, kClosed, alone_);
  if (context_.platform->tracing & PTO_TRACE_EDGES) record_releases(thread, task, fanout);
  release_consumers(thread, task, fanout);
  const uint32_t rings = release_producers(rings_.descriptor(task));
  done(state);
  return rings;
}

void Completion::record_releases(uint32_t thread, SlotRef task, EdgeRef edge) {
  for (; edge != kNoEdge; edge = rings_.edge(edge).next) {
    pto_record(context_.platform, PTO_TRACK_SCHEDULER + thread, PTO_TRACE_RELEASE,
               static_cast<uint64_t>(rings_.descriptor(task).id),
               static_cast<uint64_t>(rings_.descriptor(rings_.edge(edge).consumer).id));
  }
}

// The list starts with the newest consumer. Reverse it, because the oldest consumer must be queued
// first.
void Completion::release_consumers(uint32_t thread, SlotRef task, EdgeRef edge) {
  TaskList satisfied;
  while (edge != kNoEdge) {
    const Edge& fanout = rings_.edge(edge);
    const SlotRef consumer = fanout.consumer;
    // read `next` first: after the release, the consumer may complete and free the edge
    edge = fanout.next;
    if (edge != kNoEdge) __builtin_prefetch(&rings_.edge(edge));
    if (take_last(rings_.state(consumer).waits, alone_)) satisfied.push_first(rings_, consumer);
    pto_yield(context_.platform, PTO_YIELD_RELEASE);
  }
  while (satisfied.size() > 0) ready_.add(thread, satisfied.pop(rings_), task);
}

// Count this task's completion at each producer that it holds. Return, as bits, the rings in which
// such a producer may be able to retire now.
uint32_t Completion::release_producers(const TaskDescriptor& descriptor) {
  uint32_t rings = 0;
  const Edge* edges = &rings_.edge(descriptor.first_edge);
  for (uint32_t i = 0; i < descriptor.edge_count; ++i) {
    if ((edges[i].kind & kHolds) == 0) continue;
    // The value of `held` may be outdated here. This release may then appear to be the last one
    // although others follow, which only causes an additional check.
    RingTaskState& producer = rings_.state(edges[i].producer);
    const uint32_t released = add(producer.released, 1u, alone_) + 1;
    if (released >= producer.held.load(std::memory_order_relaxed)) {
      rings |= 1u << ring_of(edges[i].producer);
    }
  }
  return rings;
}

uint32_t Completion::retire(uint32_t index) {
  TaskRing& ring = rings_.ring[index];
  if (alone_) return retire_oldest(ring);
  const int64_t first = ring.watermark.load(std::memory_order_relaxed);
  if (ring.releasable.load(std::memory_order_relaxed) <= first &&
      ring.releasable.fetch_add(0, std::memory_order_acq_rel) <= first) {
    return 0;
  }
  uint32_t calls = ring.retiring.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (calls != 1) return 0;
  uint32_t count = 0;
  do {
    count += retire_oldest(ring);
  } while (!ring.retiring.compare_exchange_strong(calls, 0, std::memory_order_acq_rel,
                                                  std::memory_order_acquire));
  return count;
}

uint32_t Completion::retire_oldest(TaskRing& ring) {
  const int64_t first = ring.watermark.load(std::memory_order_relaxed);
  const int64_t end = ring.releasable.load(std::memory_order_acquire);
  int64_t number = first;
  for (; number < end && is_over(ring.state(number)); ++number) {
    move<Event::kRetire>(ring.state(number).phase);
  }
  if (number != first) ring.watermark.store(number, std::memory_order_release);
  return static_cast<uint32_t>(number - first);
}

// Return whether the task is done and no consumer holds it.
bool Completion::is_over(const RingTaskState& state) {
  if (state.phase.load(std::memory_order_acquire) != kDone) return false;
#ifdef PTO_PLANT_EARLY_RECLAIM
  return true;
#else
  return state.released.load(std::memory_order_acquire) ==
         state.held.load(std::memory_order_relaxed);
#endif
}

namespace {

constexpr uint32_t kLine = 64;  // size of a cache line in bytes

}  // namespace

void Dispatcher::free_core(Lane& lane, uint32_t core) {
  const uint32_t type = context_.platform->topology->core_type[core];
  lane.free_cores[type].words[core / 64] |= uint64_t{1} << (core % 64);
  ++lane.free_count[type];
}

void Dispatcher::finish_core(Lane& lane, uint32_t core) {
  if (!contains(lane.borrowed, core)) return free_core(lane, core);
  remove(lane.borrowed, core);
  pto_core_mask returned{};
  insert(returned, core);
  ready_.cohorts.give_back(returned);
  ready_.wake_lanes();
}

void Dispatcher::take_back(Lane& lane) {
  if (empty(lane.left)) return;
  pto_core_mask cores = ready_.cohorts.returned(lane.left);
  ready_.cohorts.take_back(cores);
  while (!empty(cores)) {
    const uint32_t core = take_first(cores);
    remove(lane.left, core);
    free_core(lane, core);
  }
}

bool Dispatcher::fill_cores(Lane& lane) {
  const int64_t before = lane.dispatched.load(std::memory_order_relaxed);
  fill_cohort(lane);
  const bool has_had_mixed = ready_.has_had_mixed();
  if (has_had_mixed) fill_clusters(lane);
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
    if (usable_count(lane, type) == 0) ready_.leave(lane.thread, type, lane.statistics);
  }
  if (has_had_mixed && ready_.has_local(lane.thread, kClusterQueue)) {
    ready_.leave(lane.thread, kClusterQueue, lane.statistics);
  }
  return lane.dispatched.load(std::memory_order_relaxed) != before;
}

void Dispatcher::fill_unpinned(Lane& lane, uint32_t type, bool others_first) {
  const uint32_t limit = usable_count(lane, type);
  if (limit == 0) return;
  SlotRef tasks[PTO_MAX_CORES];
  const uint32_t count =
      ready_.take(lane.thread, type, others_first, limit, tasks, lane.statistics);
  for (uint32_t i = 0; i < count; ++i) __builtin_prefetch(&rings_.descriptor(tasks[i]));
  for (uint32_t i = 0; i < count; ++i) prefetch_payload(tasks[i]);
  if (count == 0) return;
  pto_core_mask cores = usable_cores(lane, type);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t core = first_of(cores);
    cores.words[core / 64] &= ~(uint64_t{1} << (core % 64));
    put_on_core(lane, type, core, tasks[i]);
  }
}

void Dispatcher::prefetch_payload(SlotRef task) const {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  const char* payload = reinterpret_cast<const char*>(descriptor.payload);
  for (uint32_t at = 0; at < descriptor.payload_length; at += kLine) {
    __builtin_prefetch(payload + at);
  }
}

void Dispatcher::fill_pinned(Lane& lane, uint32_t type) {
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

void Dispatcher::put_on_core(Lane& lane, uint32_t type, uint32_t core, SlotRef task) {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  move<Event::kDispatch>(rings_.state(task).phase);
  take_core(lane, type, core, task,
            descriptor.block_dim > 0 ? copy_payload(lane, descriptor) : descriptor.payload);
}

void Dispatcher::take_core(Lane& lane, uint32_t type, uint32_t core, SlotRef task,
                           const pto_payload* payload) {
  lane.free_cores[type].words[core / 64] &= ~(uint64_t{1} << (core % 64));
  --lane.free_count[type];
  lane.running[core] = task;
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  const uint16_t flags =
      descriptor.is_together != 0 ? uint16_t{PTO_DISPATCH_TOGETHER} : uint16_t{0};
  lane.batch[lane.batched++] = {core, descriptor.payload_length, flags, payload};
}

uint32_t Dispatcher::core_of(uint32_t cluster, uint32_t lane) const {
  return lane == 0 ? cluster : context_.platform->topology->blocks + 2 * cluster + lane - 1;
}

int32_t Dispatcher::func_id_on(uint32_t core, const TaskDescriptor& descriptor) const {
  if (descriptor.lanes == 0) return descriptor.payload->func_id;
  const uint32_t blocks = context_.platform->topology->blocks;
  const uint32_t lane = core < blocks ? 0 : 1 + (core - blocks) % 2;
  return reinterpret_cast<const ChipPayload*>(descriptor.payload)->lanes[lane].func_id;
}

bool Dispatcher::is_free(const Lane& lane, uint32_t cluster, uint32_t lanes) const {
  for (uint32_t one = 0; one < PTO_LANES; ++one) {
    const uint32_t type = one == 0 ? PTO_CORE_AIC : PTO_CORE_AIV;
    if ((lanes >> one & 1) != 0 && !contains(lane.free_cores[type], core_of(cluster, one))) {
      return false;
    }
  }
  return true;
}

uint32_t Dispatcher::free_clusters(const Lane& lane) const {
  uint32_t count = 0;
  for (uint32_t cluster = 0; cluster < context_.platform->topology->blocks; ++cluster) {
    count += is_free(lane, cluster, PTO_LANE_AIC | PTO_LANE_AIV0 | PTO_LANE_AIV1);
  }
  return count;
}

bool Dispatcher::has_cohort_work(const Lane& lane) const {
  const Cohorts& cohorts = ready_.cohorts;
  if (!empty(lane.left) && !empty(cohorts.returned(lane.left))) return true;
  if (!cohorts.has_any()) return false;
  const Cohorts::Wanted wanted = cohorts.wanted();
  if (wanted.number == 0) return true;
  return (wanted.queue == kClusterQueue ? free_clusters(lane) : lane.free_count[wanted.queue]) > 0;
}

// Leave free cores to the cohort that gathers, and dispatch it if these were the last ones.
void Dispatcher::fill_cohort(Lane& lane) {
  Cohorts& cohorts = ready_.cohorts;
  if (!cohorts.has_any()) {
    lane.reserved_clusters = 0;
    return;
  }
  if (!cohorts.try_lock()) return;
  lane.reserved_clusters = 0;
  const bool is_new = cohorts.wanted().number == 0 && cohorts.start(rings_) != kNoSlot;
  if (cohorts.wanted().number == 0) return cohorts.unlock();
  const SlotRef head = cohorts.head();
  leave_cores(lane, head);
  const bool is_last = cohorts.wanted().number == 0;
  const pto_core_mask cores = is_last ? cohorts.take() : pto_core_mask{};
  cohorts.unlock();
  if (is_last) put_cohort(lane, head, cores);
  if (is_new || is_last) ready_.wake_lanes();
}

// Leave as many free cores or clusters as the cohort needs. If it needs further clusters, reserve
// clusters of the lane: their cores take no other tasks, so that they become free.
void Dispatcher::leave_cores(Lane& lane, SlotRef head) {
  const Cohorts::Wanted wanted = ready_.cohorts.wanted();
  pto_core_mask left{};
  uint32_t number = 0;
  if (wanted.queue != kClusterQueue) {
    pto_core_mask free = lane.free_cores[wanted.queue];
    for (; number < wanted.number && !empty(free); ++number) {
      leave_core(lane, take_first(free), left);
    }
    return ready_.cohorts.leave(left, number);
  }
  const pto_topology& topology = *context_.platform->topology;
  const uint32_t lanes = rings_.descriptor(head).lanes;
  const uint64_t own = topology.thread_cores[lane.thread].words[0] & ((1u << topology.blocks) - 1);
  uint32_t busy = 0;
  for (uint64_t rest = own; rest != 0 && number < wanted.number; rest &= rest - 1) {
    const auto cluster = static_cast<uint32_t>(__builtin_ctzll(rest));
    if (!is_free(lane, cluster, PTO_LANE_AIC | PTO_LANE_AIV0 | PTO_LANE_AIV1)) {
      busy |= 1u << cluster;
      continue;
    }
    ++number;
    for (uint32_t one = 0; one < PTO_LANES; ++one) {
      if ((lanes >> one & 1) != 0) leave_core(lane, core_of(cluster, one), left);
    }
  }
  ready_.cohorts.leave(left, number);
  for (uint32_t needed = wanted.number - number; needed > 0 && busy != 0; --needed) {
    lane.reserved_clusters |= busy & (0 - busy);
    busy &= busy - 1;
  }
}

void Dispatcher::leave_core(Lane& lane, uint32_t core, pto_core_mask& left) const {
  const uint32_t type = context_.platform->topology->core_type[core];
  remove(lane.free_cores[type], core);
  --lane.free_count[type];
  insert(lane.left, core);
  insert(left, core);
}

// Put the blocks on the cores that the lanes have left.
void Dispatcher::put_cohort(Lane& lane, SlotRef head, pto_core_mask cores) {
  const pto_topology& topology = *context_.platform->topology;
  const pto_core_mask& own = topology.thread_cores[lane.thread];
  for (pto_core_mask rest = cores; !empty(rest);) {
    const uint32_t core = take_first(rest);
    if (contains(own, core)) {
      remove(lane.left, core);
    } else {
      insert(lane.borrowed, core);
    }
    free_core(lane, core);
  }
  const TaskDescriptor& descriptor = rings_.descriptor(head);
  const TaskRing& ring = rings_.ring[ring_of(head)];
  const uint32_t blocks = descriptor.block_dim;
  for (uint32_t block = 0; block < blocks; ++block) {
    const SlotRef slot = ring.block(head, block);
    const uint32_t core = take_first(cores);
    if (descriptor.lanes == 0) {
      put_on_core(lane, topology.core_type[core], core, slot);
      continue;
    }
    const uint32_t cluster = core < topology.blocks ? core : (core - topology.blocks) / 2;
    for (uint32_t one = 0; one < PTO_LANES; ++one) remove(cores, core_of(cluster, one));
    put_on_cluster(lane, cluster, slot);
  }
}

// Put tasks that need several cores of a cluster on free clusters. If further ones wait, reserve a
// cluster: its cores take no other tasks, so that they become free at the same time.
void Dispatcher::fill_clusters(Lane& lane) {
  const auto has_task = [&] {
    return ready_.has_local(lane.thread, kClusterQueue) || ready_.has_shared(kClusterQueue);
  };
  if (!has_task()) return;
  SlotRef tasks[PTO_MAX_BLOCKS];
  const bool others_first = (lane.fills[kClusterQueue] + 1) % Ready::kFairTurn == 0;
  const uint32_t count = ready_.take(lane.thread, kClusterQueue, others_first, free_clusters(lane),
                                     tasks, lane.statistics);
  if (count > 0) ++lane.fills[kClusterQueue];
  for (uint32_t i = 0, cluster = 0; i < count; ++i) {
    while (!is_free(lane, cluster, PTO_LANE_AIC | PTO_LANE_AIV0 | PTO_LANE_AIV1)) ++cluster;
    put_on_cluster(lane, cluster, tasks[i]);
  }
  // AIC i belongs to cluster i; a lane may have no cores
  const pto_core_mask& own = context_.platform->topology->thread_cores[lane.thread];
  if (has_task() && own.words[0] != 0) lane.reserved_clusters |= 1u << first_of(own);
}

void Dispatcher::put_on_cluster(Lane& lane, uint32_t cluster, SlotRef task) {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  RingTaskState& state = rings_.state(task);
  const auto lanes = static_cast<uint32_t>(__builtin_popcount(descriptor.lanes));
  state.waits.store(lanes, std::memory_order_relaxed);
  lane.further_lanes += lanes - 1;
  move<Event::kDispatch>(state.phase);
  for (uint32_t one = 0; one < PTO_LANES; ++one) {
    if ((descriptor.lanes >> one & 1) == 0) continue;
    auto* payload = reinterpret_cast<ChipPayload*>(copy_payload(lane, descriptor));
    payload->header.kernel = payload->lanes[one].kernel;
    payload->header.func_id = payload->lanes[one].func_id;
    payload->global.sub_block_id = payload->lanes[one].sub_block_id;
    take_core(lane, one == 0 ? PTO_CORE_AIC : PTO_CORE_AIV, core_of(cluster, one), task,
              &payload->header);
  }
}

uint32_t Dispatcher::count_usable(const Lane& lane, uint32_t type) const {
  const pto_core_mask cores = usable_cores(lane, type);
  return static_cast<uint32_t>(__builtin_popcountll(cores.words[0]) +
                               __builtin_popcountll(cores.words[1]));
}

// Return the free cores that single tasks may use.
pto_core_mask Dispatcher::usable_cores(const Lane& lane, uint32_t type) const {
  pto_core_mask cores = lane.free_cores[type];
  for (uint32_t rest = lane.reserved_clusters; rest != 0; rest &= rest - 1) {
    const auto cluster = static_cast<uint32_t>(__builtin_ctz(rest));
    for (uint32_t one = 0; one < PTO_LANES; ++one) remove(cores, core_of(cluster, one));
  }
  return cores;
}

// Return a copy of the payload in the lane's scratch memory, with the number of the block.
pto_payload* Dispatcher::copy_payload(Lane& lane, const TaskDescriptor& descriptor) {
  const uint32_t length = descriptor.payload_length;
  auto* payload = reinterpret_cast<pto_payload*>(lane.scratch + lane.used);
  lane.used += (length + kLine - 1) & ~(kLine - 1);
  std::memcpy(payload, descriptor.payload, length);
  if (descriptor.block_dim == 0) return payload;
  payload->task = static_cast<uint64_t>(descriptor.id);
  uint64_t block_id;  // its upper half may be the number of blocks
  char* at = reinterpret_cast<char*>(payload) + descriptor.block_id_at;
  std::memcpy(&block_id, at, sizeof block_id);
  block_id += descriptor.block_id;
  std::memcpy(at, &block_id, sizeof block_id);
  return payload;
}

void Dispatcher::dispatch(Lane& lane) {
  const uint32_t count = lane.batched;
  lane.in_flight += count;
  lane.statistics.dispatches += count;
  ++lane.statistics.batches;
  lane.dispatched.store(static_cast<int64_t>(lane.statistics.dispatches - lane.further_lanes),
                        std::memory_order_relaxed);
  context_.platform->dispatch(context_.platform->self, lane.thread, lane.batch, count);
  lane.batched = lane.used = 0;
}

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
  lane.reserved_clusters = 0;
  lane.left = lane.borrowed = {};
  lane.further_lanes = 0;
  lane.fills[kClusterQueue] = 0;
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
  dispatcher_.take_back(lane);
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
  if (ready_.has_dummy(thread)) rings |= complete_dummies(lane);
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
      dispatcher_.finish_core(lane, core);
      const uint32_t found = completion_.complete(lane.thread, lane.running[core], core);
      --lane.in_flight;
      completed += found != 0;  // 0: other lanes of the task still run
      rings |= found;
    }
  }
  lane.completed.store(completed, std::memory_order_relaxed);
  return rings;
}

// Complete the tasks of the lane that run no kernel. Each may make further ones ready. Return, as
// bits, the rings in which a task may be able to retire now.
uint32_t Scheduler::complete_dummies(Lane& lane) {
  uint32_t rings = 0;
  while (ready_.has_dummy(lane.thread)) {
    const SlotRef task = ready_.take_dummy(lane.thread);
    move<Event::kDispatch>(rings_.state(task).phase);
    ++lane.statistics.dispatches;
    rings |= completion_.complete(lane.thread, task, PTO_MAX_CORES);
    lane.completed.store(lane.completed.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  }
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
  Text(name, sizeof name).add(RingTaskName{told.task});
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
  const int32_t func_id = dispatcher_.func_id_on(core, descriptor);
  const SlotRef head = descriptor.block_dim > 0 ? descriptor.head : task;
  const RingTask& record = rings_.ring[ring_of(head)].records[slot_of(head)];
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
    if (dispatcher_.usable_count(lane, type) > 0) free_types |= 1u << type;
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
  if (ready_.has_mail(lane.thread) || dispatcher_.has_cohort_work(lane)) return true;
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    if (dispatcher_.usable_count(lane, type) > 0
            ? ready_.has_shared(type) || ready_.has_local(lane.thread, type)
            : threads_ > 1 && ready_.has_local(lane.thread, type)) {
      return true;
    }
  }
  const bool has_local = ready_.has_local(lane.thread, kClusterQueue);
  if (has_local && threads_ > 1) return true;
  return (has_local || ready_.has_shared(kClusterQueue)) && dispatcher_.free_clusters(lane) > 0;
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
