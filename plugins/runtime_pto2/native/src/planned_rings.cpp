#include "planned_rings.hpp"

namespace pto::ring_buffer {

void PlannedRings::enter() {
  run_.space.sync(CleanedBy::kBatch, 1);
  planner_.enter(run_.rings, run_.sizes);
}

Plan PlannedRings::finish(bool is_whole) {
  // An orchestration that ended early might have needed larger sizes, so the plan is a lower bound.
  if (!is_whole) planner_.cut_short();
  return planner_.finish(history_);
}

Plan PlannedRings::lower_bounds(const Proof& proof) {
  const Blocked& blocked = proof.blocked;
  const uint64_t needed = proof.used + blocked.needed;
  Needs needs{};
  if (blocked.what == Resource::kWindow) needs.tasks[blocked.ring] = needed;
  if (blocked.what == Resource::kHeap) history_.reserve(blocked.ring, blocked.needed);
  if (blocked.what == Resource::kEdges) needs.edges[blocked.ring] = needed;
  if (blocked.what == Resource::kTensorMap) needs.tensor_map = needed;
  if (blocked.what == Resource::kCluster) needs.clusters = needed;
  Plan plan = smallest_sizes(proof.sizes, needs, history_);
  plan.is_lower_bound = true;
  return plan;
}

bool PlannedRings::stop() {
  run_.context.fail({PTO_ERROR_DEADLOCK}, "the search for sufficient sizes reached its limit");
  return false;
}

bool PlannedRings::reserve_slots(const Draft& draft) {
  return planner_.reserve_slots(draft.ring, draft.count) || stop();
}

bool PlannedRings::reserve_outputs(Draft& draft) {
  history_.reserve(draft.ring, draft.output_bytes);
  draft.heap_address = planner_.reserve_outputs(draft.output_bytes);
  return draft.heap_address != 0 || stop();
}

// The number is exact, because a planned submit also inserts its entries.
bool PlannedRings::reserve_entries(const Draft& draft) {
  TensorMap& map = run_.space.map();
  planner_.needs_tensor_map(map.needed(draft.entries));
  return map.grow_for(draft.entries) || stop();
}

bool PlannedRings::publish(const HeldTask& held, const EdgeList& edges) {
  planner_.needs_edges(held.ring, edges.count());
  const uint32_t end = static_cast<uint32_t>(run_.space.ring(held.ring).edges.head());
  for (uint32_t block = 0; block < held.count; ++block) {
    run_.rings.ring[held.ring].record(held.number + block).edges_end = end;
  }
  return true;
}

bool PlannedRings::allocate_cluster(uint32_t depth, CallSite, int32_t* cluster) {
  *cluster = planner_.allocate_cluster(depth, run_.clusters.allocated());
  return *cluster != Clusters::kNone || stop();
}

void PlannedRings::free_cluster(int32_t cluster) {
  if (run_.clusters.is_allocated(cluster)) {
    run_.clusters.free(cluster);
  } else {
    planner_.free_cluster(cluster);
  }
}

void PlannedRings::end_scope(uint32_t depth) {
  planner_.end_scope(depth);
  run_.clusters.end_scope(depth);
}

void PlannedRings::released(uint32_t ring) {
  planner_.released(ring);
  run_.space.sync_ring(ring, CleanedBy::kBatch);
}

}  // namespace pto::ring_buffer
