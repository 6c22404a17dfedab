// The newest submit goes into the stream with the call after it; until then add_dep() may add edges
// to it, which is why its edges get their place in the dependency pool only here.
//
// Schedulers with other work see a submit when `submitted` moves: a few submits share one such
// move, as the word is a line that they all read. Before one rests it looks at `logged`, too, and
// once all rest the next submit moves `submitted` and wakes one. So no published task waits for a
// submit.
#include "orchestrator.hpp"

namespace pto::ring_buffer {

void Orchestrator::publish() {
  settle();
  flush();
}

void Orchestrator::settle() {
  if (held_.count == 0) return;
  const bool is_placed = place_edges();
  const Held held = held_;
  held_.count = 0;
  if (!is_placed || planner_.is_planning()) return;
  rings_.log[logged_++ & (rings_.log_size - 1)] =
      slot_ref(held.ring, rings_.ring[held.ring].slot(held.number));
  rings_.logged.store(logged_, std::memory_order_seq_cst);
}

void Orchestrator::flush() {
  if (published_ == logged_) return;
  published_ = logged_;
  rings_.submitted.store(logged_, std::memory_order_seq_cst);
  scheduler_.published();
  pto_yield(context_.platform, PTO_YIELD_SUBMIT);
}

bool Orchestrator::place_edges() {
  const TaskRing& ring = rings_.ring[held_.ring];
  Side& side = sides_[held_.ring];
  if (planner_.is_planning()) {
    planner_.needs_edges(held_.ring, edges_.count());
  } else if (edges_.count() != 0) {
    uint32_t first = reserve_edges(held_.ring, edges_.count());
    if (first == 0 && !wait_for_edges(&first) && !planner_.is_planning()) return false;
    if (first != 0) {
      TaskDescriptor& descriptor = ring.descriptor(held_.number);
      descriptor.first_edge = held_.ring << 30 | first;
      descriptor.edge_count = edges_.count();
      write_edges(first, slot_ref(held_.ring, ring.slot(held_.number)));
    }
  }
  const uint32_t end = static_cast<uint32_t>(side.edges.head());
  for (uint32_t block = 0; block < held_.count; ++block) {
    ring.record(held_.number + block).edges_end = end;
  }
  return true;
}

void Orchestrator::write_edges(uint32_t first, SlotRef consumer) {
  const pto_platform* platform = context_.platform;
  Edge* edge = rings_.ring[held_.ring].edges + first;
  if (platform->deterministic != 0) edges_.sort();
  const EdgeList::Item* const end = edges_.end();
  const bool is_watched = (platform->deterministic | platform->tracing) != 0;
  for (const EdgeList::Item* item = edges_.begin(); item != end; ++item, ++edge) {
    if (is_watched) announce_edge(*item, consumer);
    *edge = {item->producer, consumer, kNoEdge, item->kind};
  }
}

void Orchestrator::announce_edge(const EdgeList::Item& item, SlotRef consumer) {
  pto_yield(context_.platform, PTO_YIELD_EDGE);
  if ((item.kind & kOrders) == 0) return;
  pto_trace(context_.platform, PTO_TRACE_EDGE,
            static_cast<uint64_t>(rings_.descriptor(item.producer).id),
            static_cast<uint64_t>(rings_.descriptor(consumer).id));
}

uint32_t Orchestrator::reserve_edges(uint32_t ring, uint32_t count) {
  Side& side = sides_[ring];
  const HeapRing::Range range = side.edges.try_reserve(count, side.edges_tail);
  if (!range.fits) return 0;
  const uint64_t used = side.edges.used(side.edges_tail);
  uint64_t& peak = statistics_.ring[ring].dependencies_peak;
  if (used > peak) peak = used;
  return static_cast<uint32_t>(range.position);
}

bool Orchestrator::wait_for_edges(uint32_t* first) {
  const uint32_t index = held_.ring;
  const TaskRecord& record = rings_.ring[index].record(held_.number);
  Blocked blocked;
  blocked.what = Resource::kEdges;
  blocked.ring = index;
  blocked.depth = scopes_.depth();
  blocked.needed = edges_.count();
  blocked.func_id = record.func_id;
  blocked.file = record.file;
  blocked.line = record.file != nullptr ? record.line : -1;
  if (!sides_[index].edges.can_ever_fit(edges_.count()) && !wait_for_fewer_edges(blocked)) {
    return false;
  }
  const auto look = [&] {
    if (edges_.count() == 0) return true;
    sync_ring(index, CleanedBy::kBatch);
    free_done_edges(index);
    *first = reserve_edges(index, edges_.count());
    return *first != 0;
  };
  return look() || wait_until(blocked, look);
}

// More edges than the whole pool has: only producers that retire can make them fewer, and how soon
// they do must not decide. So it is an error only if it still is one when all is quiet.
bool Orchestrator::wait_for_fewer_edges(const Blocked& blocked) {
  if (!wait_until(blocked, [this] { return is_quiet_; })) return false;
  sync(CleanedBy::kBatch, 1);
  edges_.drop([this](SlotRef producer) { return has_retired(producer); });
  const HeapRing& pool = sides_[blocked.ring].edges;
  if (pool.can_ever_fit(edges_.count())) return true;
  ErrorFacts facts{PTO_ERROR_CAPACITY, last_id_, -1, blocked.func_id};
  facts.value = uint64_t{edges_.count()} + 1;
  facts.limit = rings_.ring[blocked.ring].edge_capacity;
  context_.fail_at(blocked.file, blocked.line, facts, TaskName{last_id_}, " (function ",
                   blocked.func_id, ") depends on ", edges_.count(),
                   " live tasks, and the dependency pool of ring ", blocked.ring, " has room for ",
                   pool.capacity(), "; it needs at least --set pto2.dep_pool=", facts.value);
  return false;
}

// No slot has been taken since the edge was found, so the slot's newest task is the one meant.
bool Orchestrator::has_retired(SlotRef producer) const {
  const TaskRing& ring = rings_.ring[ring_of(producer)];
  const uint32_t back = (ring.slot(ring.next - 1) - slot_of(producer)) & (ring.window - 1);
  return ring.next - 1 - static_cast<int64_t>(back) < sides_[ring_of(producer)].alive;
}

pto_status Orchestrator::add_dep(int64_t from, int64_t to, Place at) {
  if (!goes_on() || !check_dep(from, to, at)) return status();
  const TaskId producer = TaskId::of(from);
  // A task that has retired has completed: nothing to wait for.
  if (producer.number < sides_[producer.ring].alive) return PTO_OK;
  const SlotRef slot = slot_ref(producer.ring, rings_.ring[producer.ring].slot(producer.number));
  statistics_.edges.explicit_ += edges_.add(slot, kOrders) != 0;
  return PTO_OK;
}

bool Orchestrator::check_dep(int64_t from, int64_t to, Place at) {
  const ErrorFacts facts{PTO_ERROR_USAGE, to, from};
  const TaskId producer = TaskId::of(from);
  if (held_.count == 0 || to != last_id_) {
    refuse(at, facts, "add_dep from ", TaskName{from}, " to ", TaskName{to},
           ": the second must be the task submitted last, before any other call; add the "
           "dependencies of a task right after its submit");
    return false;
  }
  if (from >= 0 && from != to && producer.number < rings_.ring[producer.ring].next) return true;
  refuse(at, facts, "add_dep to ", TaskName{to}, " from ", TaskName{from},
         from == to ? ", itself; name another task"
                    : ", which does not exist; use an id that a submit returned");
  return false;
}

}  // namespace pto::ring_buffer
