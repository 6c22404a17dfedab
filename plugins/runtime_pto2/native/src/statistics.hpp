// Counters of a run that the orchestrator keeps, and the form in which all counters leave.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/text.hpp"
#include "task.hpp"

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

// Writes counters one by one into the caller's array, and counts those that did not fit, too.
class StatisticsWriter {
 public:
  StatisticsWriter(pto_statistic* out, uint32_t capacity) : out_(out), capacity_(capacity) {}

  // The parts of the name are put together: sum("blocked_", "tasks", "_ns").
  template <class... Parts>
  void sum(uint64_t value, Parts... name) {
    add(value, 0, name...);
  }

  template <class... Parts>
  void peak(uint64_t value, Parts... name) {
    add(value, 1, name...);
  }

  uint32_t count() const { return count_; }

 private:
  template <class... Parts>
  void add(uint64_t value, uint32_t is_peak, Parts... name) {
    if (count_ < capacity_) {
      pto_statistic& statistic = out_[count_];
      engine::Text(statistic.name, sizeof statistic.name).add(name...);
      statistic.value = value;
      statistic.is_peak = is_peak;
      statistic.reserved = 0;
    }
    ++count_;
  }

  pto_statistic* out_;
  uint32_t capacity_;
  uint32_t count_ = 0;
};

}  // namespace pto::ring_buffer
