// The resource for which the orchestrator waits. The orchestrator writes this record before the
// wait and does not change it during the wait, so the deadlock proof may read it.
#pragma once

#include <cstdint>

#include "pto/abi/status.h"

namespace pto::ring_buffer {

enum class Resource : uint32_t {
  kNone = PTO_RESOURCE_NONE,              // the orchestrator does not wait
  kWindow = PTO_RESOURCE_TASK_RING,       // slots of the task ring `ring`
  kHeap = PTO_RESOURCE_HEAP_RING,         // bytes of the heap of `ring`
  kEdges = PTO_RESOURCE_DEPENDENCY_POOL,  // entries of the dependency pool of `ring`
  kTensorMap = PTO_RESOURCE_TENSOR_MAP,   // entries of the tensor map's pool
  kCluster = PTO_RESOURCE_CLUSTERS,       // a cluster of cores
  kTasks = PTO_RESOURCE_TASKS             // the completion of tasks whose memory it accesses
};
constexpr uint32_t kResources = 6;           // those that can be exhausted
constexpr uint32_t kWaits = kResources + 1;  // also kTasks

struct Blocked {
  Resource what = Resource::kNone;
  uint32_t ring = 0;
  uint32_t depth = 0;   // depth of the innermost scope
  uint64_t needed = 0;  // the requested amount, in slots, bytes, entries or clusters
  int32_t func_id = -1;
  int32_t line = -1;
  const char* file = nullptr;  // source file of the user; NULL if unknown
  uint64_t since_ns = 0;
};

}  // namespace pto::ring_buffer
