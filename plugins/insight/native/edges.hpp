// The edges of a program, with their reasons.
//
// The accesses are looked up as the runtime looks them up, in the same index and by the same rules,
// but no task ever retires. So the result contains the edges that a run drops because the producer
// has already ended, and does not depend on timing.
//
// The orchestration itself may read and write memory. Such an access waits as a task does. A write
// also waits for all earlier users of the memory, also if hazards are raw. All tasks that are
// submitted later come after the access. So each use of memory has at most one edge to a write of
// the host, and of several earlier writes of the host, only the newest has an edge to a use.
//
// Clusters: the number of a cluster depends on timing, but one case does not. If the program holds
// all clusters except one, its next allocation receives this last cluster. By then, all tasks on
// clusters that the program has freed have ended, so they come before the tasks of the allocation.
#pragma once

#include <cstdint>
#include <vector>

#include "tables.hpp"

namespace pto::insight {

// The values are those of pto_insight.graphs.analysis.Why.
enum class Why : uint32_t {
  kRead = 0,
  kOverwrite = 1,
  kAntiDependence = 2,
  kExplicit = 3,
  kCluster = 4,
  kRetaining = 5,
  kOwner = 6,
  kHost = 7
};

// A reason why `second` starts after `first` has ended.
struct EdgeReason {
  uint32_t first;
  uint32_t second;
  uint32_t first_access;   // kNone for explicit edges, for clusters and for kHost
  uint32_t second_access;  // as first_access
  Why why;
  uint32_t is_conservative;  // by byte hulls only
  uint64_t first_byte;       // of the bytes that both name
  uint64_t shared_bytes;     // 0: the accesses are disjoint, or there are none
};
static_assert(sizeof(EdgeReason) == 40);

struct Edges {
  std::vector<EdgeReason> reasons;  // by second task
  std::vector<uint32_t> unwritten;  // accesses that read, and overlap no earlier write
};

// `blocks`: the number of clusters of the run. Throws BadLog.
Edges find_edges(const LogTables& log, bool is_full, uint32_t blocks);

}  // namespace pto::insight
