#include "wiring.hpp"

#include "alone.hpp"

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
  TaskState& state = ring.state(number);
#ifdef PTO_CHECK_STATES
  // Until the ring wraps around, the slots still contain data of the previous run.
  if (number >= ring.window && !may_follow(state.phase.load(), Event::kWire)) __builtin_trap();
#endif
  state.fanout.store(kNoEdge, std::memory_order_relaxed);
  state.held.store(0, std::memory_order_relaxed);
  state.released.store(0, std::memory_order_relaxed);
  state.phase.store(target(Event::kWire), std::memory_order_relaxed);
  state.traits = descriptor.core_type | static_cast<uint32_t>(descriptor.cluster + 1)
                                            << kClusterShift;
  if (descriptor.block_dim > 0) {
    state.traits |= kIsBlock;
    state.blocks_left.store(descriptor.block_dim, std::memory_order_relaxed);
  }
}

// Connect a task to its producers. Return whether all producers have completed.
bool Wiring::connect(TaskState& state, const TaskDescriptor& descriptor,
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

}  // namespace pto::ring_buffer
