// The counters of one scheduler. Only its thread writes them; other threads read them after the
// run.
#pragma once

#include <cstdint>

namespace pto::ring_buffer {

struct LaneStatistics {
  uint64_t dispatches;
  uint64_t batches;
  uint64_t wired;            // number of submits
  uint64_t edges;            // ordering edges that the scheduler connected
  uint64_t edges_satisfied;  // of these, edges to producers that had already completed
  uint64_t early_ready;      // tasks that were ready when they were connected
  uint64_t shared;           // ready tasks that it offered to all schedulers
  uint64_t taken;            // tasks that it took from its own queue shard
  uint64_t steals;           // tasks that it took from the shard of another scheduler
  uint64_t pinned;           // tasks of clusters that it dispatched
  uint64_t retired;          // tasks that it retired
  uint64_t wakes;            // number of times that it woke an idle scheduler
  uint64_t ready_peak;       // maximum number of ready tasks that waited for its cores
};

}  // namespace pto::ring_buffer
