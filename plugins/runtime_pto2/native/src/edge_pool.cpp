#include "edge_pool.hpp"

#include "report.hpp"

namespace pto::ring_buffer {

bool EdgePool::place(const HeldTask& held, EdgeList& edges) {
  const TaskRing& ring = run_.rings.ring[held.ring];
  if (edges.count() != 0) {
    uint32_t first = reserve(held.ring, edges.count());
    if (first == 0 && !wait_for_entries(held, edges, &first)) return false;
    // first is 0 if all producers retired during the wait
    if (first != 0) {
      TaskDescriptor& descriptor = ring.descriptor(held.number);
      descriptor.first_edge = held.ring << 30 | first;
      descriptor.edge_count = edges.count();
      write(held, edges, first);
    }
  }
  const uint32_t end = static_cast<uint32_t>(run_.space.ring(held.ring).edges.head());
  for (uint32_t block = 0; block < held.count; ++block) {
    ring.record(held.number + block).edges_end = end;
  }
  return true;
}

uint32_t EdgePool::reserve(uint32_t index, uint32_t count) {
  RingSpace& ring = run_.space.ring(index);
  const HeapRing::Range range = ring.edges.try_reserve(count, ring.edges_tail);
  if (!range.fits) return 0;
  const uint64_t used = ring.edges.used(ring.edges_tail);
  uint64_t& peak = run_.statistics.ring[index].dependencies_peak;
  if (used > peak) peak = used;
  return static_cast<uint32_t>(range.position);
}

bool EdgePool::wait_for_entries(const HeldTask& held, EdgeList& edges, uint32_t* first) {
  const TaskRecord& record = run_.rings.ring[held.ring].record(held.number);
  Blocked blocked;
  blocked.what = Resource::kEdges;
  blocked.ring = held.ring;
  blocked.depth = run_.scopes.depth();
  blocked.needed = edges.count();
  blocked.func_id = record.func_id;
  blocked.file = record.file;
  blocked.line = record.file != nullptr ? record.line : -1;
  FreeSpace& space = run_.space;
  if (!space.ring(held.ring).edges.can_ever_fit(edges.count()) &&
      !wait_for_fewer(held, edges, blocked)) {
    return false;
  }
  const auto has_space = [&] {
    if (edges.count() == 0) return true;
    space.sync_ring(held.ring, CleanedBy::kBatch);
    space.free_done_edges(held.ring, run_.stream.first_unwired(held.ring, held.number));
    *first = reserve(held.ring, edges.count());
    return *first != 0;
  };
  return has_space() || wait_.wait_until(blocked, has_space);
}

// Called if the task has more edges than the pool has entries. Edges to retired producers are not
// needed. But the result must not depend on the time at which producers retire, so this waits until
// no task runs, and reports an error only if the edges are then still too many.
bool EdgePool::wait_for_fewer(const HeldTask& held, EdgeList& edges, const Blocked& blocked) {
  if (!wait_.wait_until(blocked, [this] { return wait_.is_stalled(); })) return false;
  FreeSpace& space = run_.space;
  space.sync(CleanedBy::kBatch, 1);
  edges.drop([&](SlotRef producer) { return space.has_retired(producer); });
  return space.ring(held.ring).edges.can_ever_fit(edges.count()) || reject_too_many(held, edges);
}

bool EdgePool::reject_too_many(const HeldTask& held, const EdgeList& edges) {
  const TaskRing& ring = run_.rings.ring[held.ring];
  const TaskRecord& record = ring.record(held.number);
  const int64_t id = TaskId{held.ring, held.number}.value();
  ErrorFacts facts{PTO_ERROR_CAPACITY, id, -1, record.func_id};
  facts.value = uint64_t{edges.count()} + 1;
  facts.limit = ring.edge_capacity;
  run_.context.fail_at(record.file, record.line, facts, TaskName{id}, " (function ", record.func_id,
                       ") depends on ", edges.count(),
                       " live tasks, and the dependency pool of ring ", held.ring,
                       " has entries for ", run_.space.ring(held.ring).edges.capacity(),
                       "; it needs at least ", Setting{Resource::kEdges, facts.value});
  return false;
}

void EdgePool::write(const HeldTask& held, EdgeList& edges, uint32_t first) {
  const TaskRing& ring = run_.rings.ring[held.ring];
  const SlotRef consumer = slot_ref(held.ring, ring.slot(held.number));
  const pto_platform* platform = run_.context.platform;
  Edge* edge = ring.edges + first;
  if (platform->deterministic != 0) edges.sort();
  const EdgeList::Item* const end = edges.end();
  const bool is_observed = platform->deterministic != 0 ||
                           (platform->tracing & (PTO_TRACE_EDGES | PTO_TRACE_ORDER)) != 0;
  for (const EdgeList::Item* item = edges.begin(); item != end; ++item, ++edge) {
    if (is_observed) announce(*item, consumer);
    *edge = {item->producer, consumer, kNoEdge, item->kind};
  }
}

void EdgePool::announce(const EdgeList::Item& item, SlotRef consumer) {
  const pto_platform* platform = run_.context.platform;
  pto_yield(platform, PTO_YIELD_EDGE);
  if ((item.kind & kOrders) == 0) return;
  pto_trace(platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_EDGE,
            static_cast<uint64_t>(run_.rings.descriptor(item.producer).id),
            static_cast<uint64_t>(run_.rings.descriptor(consumer).id));
}

}  // namespace pto::ring_buffer
