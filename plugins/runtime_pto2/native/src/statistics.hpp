// The counters of a run that the orchestrator maintains, and the function that writes all counters
// of a run.
//
// docs/sizing-rings.md explains which counters matter for the sizes of rings.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "clusters.hpp"
#include "pto/abi/runtime.h"
#include "scheduler.hpp"
#include "task.hpp"
#include "tensor_map.hpp"

namespace pto::ring_buffer {

// Written by the orchestrator only. Other threads read it after the run, or accept a partly updated
// copy.
struct RunStatistics {
  struct Ring {
    uint64_t tasks_peak;  // largest number of live tasks
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
  Blocked blocked[kWaits];
  Edges edges;
  uint64_t tasks;
  uint64_t dispatched_blocks;

  void add_blocked(Resource resource, uint64_t ns) {
    Blocked& blocked_time = blocked[static_cast<uint32_t>(resource)];
    ++blocked_time.count;
    blocked_time.ns += ns;
  }
};

// The current use of a ring, in the orchestrator's view: a scheduler may have freed more.
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

// Write at most `capacity` counters. Return the number of all counters. Called after a run, or
// during a run if the values may be inexact.
uint32_t write_statistics(const StatisticsSources& sources, pto_statistic* out, uint32_t capacity);

}  // namespace pto::ring_buffer
