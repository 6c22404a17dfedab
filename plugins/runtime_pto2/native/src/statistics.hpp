// The counters of a run that the orchestrator keeps, and the output format of all counters.
//
// docs/sizing-rings.md explains which of them matter for the sizes of rings.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "clusters.hpp"
#include "pto/abi/runtime.h"
#include "scheduler.hpp"
#include "task.hpp"
#include "tensor_map.hpp"

namespace pto::ring_buffer {

// Orchestrator only; readers come after the run, or accept a torn view.
struct RunStatistics {
  struct Ring {
    uint64_t tasks_peak;  // alive at once
    uint64_t heap_peak;   // bytes
    uint64_t dependencies_peak;
    uint64_t scopes;
  };
  struct Blocked {
    uint64_t count;
    uint64_t ns;
  };
  struct Edges {
    uint64_t raw, war, waw, explicit_, owner;
  };

  Ring ring[kRings];
  Blocked blocked[kResources];
  Edges edges;
  uint64_t tasks;
  uint64_t dispatched_blocks;

  void add_blocked(Resource resource, uint64_t ns) {
    Blocked& blocked_time = blocked[static_cast<uint32_t>(resource)];
    ++blocked_time.count;
    blocked_time.ns += ns;
  }
};

// The present content of the rings, as known to the orchestrator.
struct RingUse {
  uint64_t tasks;
  uint64_t heap_bytes;
  uint64_t dependencies;
};

struct StatisticsSources {
  const RunStatistics& run;
  const TensorMap::Statistics& map;
  const Scheduler& scheduler;
  const Clusters& clusters;
  RingUse use[kRings];
  uint64_t reserved_bytes;
};

// Write at most `capacity` counters. Return the total number. After a run, or during one as an
// inexact snapshot.
uint32_t write_statistics(const StatisticsSources& sources, pto_statistic* out, uint32_t capacity);

}  // namespace pto::ring_buffer
