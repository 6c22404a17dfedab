#include "completion.hpp"

#include "alone.hpp"

namespace pto::ring_buffer {

uint32_t Completion::complete(uint32_t thread, SlotRef task, uint32_t core) {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  TaskState& state = rings_.state(task);
  const int32_t cluster = descriptor.cluster;
  const bool is_block = (state.traits & kIsBlock) != 0;
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
void Completion::done(TaskState& state) {
  move<Event::kRelease>(state.phase, std::memory_order_release);
}

uint32_t Completion::finish(uint32_t thread, SlotRef task) {
  TaskState& state = rings_.state(task);
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
    TaskState& producer = rings_.state(edges[i].producer);
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
bool Completion::is_over(const TaskState& state) {
  if (state.phase.load(std::memory_order_acquire) != kDone) return false;
#ifdef PTO_PLANT_EARLY_RECLAIM
  return true;
#else
  return state.released.load(std::memory_order_acquire) ==
         state.held.load(std::memory_order_relaxed);
#endif
}

}  // namespace pto::ring_buffer
