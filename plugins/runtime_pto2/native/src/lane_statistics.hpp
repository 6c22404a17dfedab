// Counters of one scheduler. Its thread alone writes them; others read them after the run.
#pragma once

#include <cstdint>

namespace pto::ring_buffer {

struct LaneStatistics {
  uint64_t dispatches;
  uint64_t batches;
  uint64_t wired;            // submits
  uint64_t edges;            // ordering edges that it wired
  uint64_t edges_satisfied;  // edges to producers that had completed
  uint64_t early_ready;      // tasks that were ready when they were wired
  uint64_t shared;           // tasks that it left to all schedulers
  uint64_t taken;            // tasks that it took from its own shard
  uint64_t steals;           // tasks that it took from another's shard
  uint64_t pinned;           // tasks that it dispatched to their cluster
  uint64_t retired;          // tasks that it let retire
  uint64_t wakes;            // schedulers that it woke
  uint64_t ready_peak;       // most ready tasks that it saw waiting
};

}  // namespace pto::ring_buffer
