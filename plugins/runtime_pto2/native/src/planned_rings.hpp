// The rings of a plan, with the functions of LiveRings. These rings are never full, and no task
// runs.
//
// After a proven deadlock, the orchestration continues on these rings. Each task counts as
// completed at once. The planner records which sizes the rings need; see planner.hpp.
//
// A function returns false if the plan has reached a limit. It has then also failed the run.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "deadlock.hpp"
#include "draft.hpp"
#include "edges.hpp"
#include "history.hpp"
#include "planner.hpp"
#include "run_state.hpp"
#include "space_wait.hpp"

namespace pto::ring_buffer {

class PlannedRings {
 public:
  PlannedRings(RunState& run, History& history)
      : run_(run), history_(history), planner_(run.context) {}

  // Called when a deadlock has been proven and all schedulers have stopped.
  void enter();
  // Called when the orchestration has ended. `is_whole`: it reported no error. Return the smallest
  // sizes that suffice, and restore the rings of the run.
  Plan finish(bool is_whole);
  void end() { planner_.end(); }

  // Without planning: return sizes that are necessary for the call that waits, but may be too small
  // for later calls.
  Plan lower_bounds(const Proof& proof);

  [[gnu::cold]] bool reserve_slots(const Draft& draft);
  [[gnu::cold]] bool reserve_outputs(Draft& draft);
  bool lend_output(const Draft&, uint32_t) { return true; }
  [[gnu::cold]] bool reserve_entries(const Draft& draft);
  bool write(Draft&) { return true; }
  [[gnu::cold]] bool publish(const HeldTask& held, const EdgeList& edges);

  // Always valid, because the memory of planned tasks has arbitrary addresses and contains no data.
  pto_status check_range(uint64_t, uint64_t, pto_error*) const { return PTO_OK; }
  bool is_output_of(const RingTask&, uint64_t) const { return true; }

  [[gnu::cold]] bool allocate_cluster(uint32_t depth, CallSite at, int32_t* cluster);
  bool is_cluster_allocated(int32_t cluster) const {
    return run_.clusters.is_allocated(cluster) || planner_.is_allocated(cluster);
  }
  [[gnu::cold]] void free_cluster(int32_t cluster);
  [[gnu::cold]] void end_scope(uint32_t depth);
  [[gnu::cold]] void released(uint32_t ring);

 private:
  bool stop();

  RunState& run_;
  History& history_;
  Planner planner_;
};

}  // namespace pto::ring_buffer
