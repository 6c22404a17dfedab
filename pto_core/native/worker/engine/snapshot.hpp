// The observable state of an engine. It is equal for two engines that behave the same.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/interface.hpp"
#include "engine/slots.hpp"

namespace pto::worker {

struct EngineState;

struct Snapshot {
  struct Task {
    int64_t number;
    TaskState state;
    std::vector<int64_t> unfinished;  // producers, ascending
    uint32_t self;                    // references
    uint32_t scope;
    uint32_t consumer;
    uint32_t owner;
    int32_t attempts;
    uint32_t ended;
    std::optional<int64_t> poison;
    std::vector<std::pair<int32_t, uint64_t>> children;  // child and frame of each member
  };
  struct EngineChild {
    uint8_t state;
    uint64_t sent;
    uint64_t completed;
    std::vector<std::pair<int64_t, uint32_t>> in_flight;  // task and member
  };
  struct Ring {
    uint64_t head;
    uint64_t used;
    uint64_t size;
  };

  struct Run {
    bool is_open;
    bool is_ending;
    std::optional<int64_t> cancelled;
    uint64_t tasks;
    uint64_t unfinished;
    std::vector<std::pair<int64_t, int64_t>> failed;
    std::vector<std::pair<int64_t, int64_t>> poisoned;
    std::vector<std::vector<int64_t>> scopes;
  };

  uint64_t conservative_edges;
  std::vector<Run> runs;
  std::vector<Task> tasks;
  std::vector<int64_t> singles;
  std::vector<int64_t> groups;
  std::vector<int64_t> early;
  std::vector<EngineChild> children;
  std::vector<Ring> rings;
};

Snapshot snapshot_of(const EngineState& core);

// Throw kInternal for the first invariant that does not hold. Slow; for tests.
void validate(const EngineState& core);

}  // namespace pto::worker
