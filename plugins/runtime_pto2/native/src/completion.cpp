#include "completion.hpp"

#include "alone.hpp"

namespace pto::ring_buffer {

uint32_t Completion::complete(uint32_t thread, SlotRef task, uint32_t core) {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  TaskState& state = rings_.state(task);
  const int32_t cluster = descriptor.cluster;
  const bool is_block = (state.traits & kIsBlock) != 0;
  move<Event::kFinish>(state.phase);
  pto_trace(context_.platform, PTO_TRACE_COMPLETE, static_cast<uint64_t>(descriptor.id), core);
  pto_yield(context_.platform, PTO_YIELD_COMPLETE);
  uint32_t rings = 1u << ring_of(task);
  if (!is_block) {
    rings |= finish(thread, task);
  } else {
    const SlotRef head = descriptor.head;
    const bool is_last = take(rings_.state(head).blocks_left, 1u, alone_) == 1;
    if (task != head) done(state);
    if (is_last) rings |= finish(thread, head);
  }
  if (cluster >= 0) clusters_.completed(cluster);
  return rings;
}

// Afterwards the slot may be another task's at any moment.
void Completion::done(TaskState& state) {
  move<Event::kRelease>(state.phase,
                        alone_ ? std::memory_order_release : std::memory_order_seq_cst);
}

uint32_t Completion::finish(uint32_t thread, SlotRef task) {
  TaskState& state = rings_.state(task);
  release_consumers(thread, swap(state.fanout, kClosed, alone_));
  const uint32_t rings = release_producers(rings_.descriptor(task));
  done(state);
  return rings;
}

// The list has the newest consumer in front; they are queued oldest first.
void Completion::release_consumers(uint32_t thread, EdgeRef edge) {
  TaskList satisfied;
  while (edge != kNoEdge) {
    const Edge& fanout = rings_.edge(edge);
    const SlotRef consumer = fanout.consumer;
    edge = fanout.next;  // before the release: then the consumer may complete and free the edge
    if (edge != kNoEdge) __builtin_prefetch(&rings_.edge(edge));
    if (take(rings_.state(consumer).waits, 1, alone_) == 1) satisfied.push_first(rings_, consumer);
    pto_yield(context_.platform, PTO_YIELD_RELEASE);
  }
  while (satisfied.size() > 0) ready_.add(thread, satisfied.pop(rings_));
}

// Gives the rings, by bit, of producers that nobody holds any more.
uint32_t Completion::release_producers(const TaskDescriptor& descriptor) {
  uint32_t rings = 0;
  const Edge* edges = &rings_.edge(descriptor.first_edge);
  for (uint32_t i = 0; i < descriptor.edge_count; ++i) {
    if ((edges[i].kind & kHolds) == 0) continue;
    const uint64_t before = take(rings_.state(edges[i].producer).holds, uint64_t{1}, alone_);
    if ((before & kHoldCount) == 1) rings |= 1u << ring_of(edges[i].producer);
  }
  return rings;
}

uint32_t Completion::retire(uint32_t index) {
  TaskRing& ring = rings_.ring[index];
  uint32_t count = 0;
  for (;;) {
    const int64_t first = ring.watermark.load(std::memory_order_seq_cst);
    const int64_t end = ring.releasable.load(std::memory_order_seq_cst);
    int64_t number = first;
    while (number < end && retire_one(ring, number)) ++number;
    if (number == first) return count;
    ring.watermark.store(number, alone_ ? std::memory_order_release : std::memory_order_seq_cst);
    count += static_cast<uint32_t>(number - first);
  }
}

// True for one thread only, which has to move the watermark then.
bool Completion::retire_one(TaskRing& ring, int64_t number) {
  TaskState& state = ring.state(number);
  if (state.phase.load(std::memory_order_seq_cst) != kDone) return false;
  uint64_t holds = no_holds(number);
#ifdef PTO_PLANT_EARLY_RECLAIM
  holds |= state.holds.load(std::memory_order_seq_cst) & kHoldCount;
#endif
  const uint64_t gone = holds | kGone;
  while (!replace(state.holds, holds, gone, alone_)) {
    if (holds != (gone & ~kGone)) return false;
  }
  move<Event::kRetire>(state.phase);
  return true;
}

}  // namespace pto::ring_buffer
