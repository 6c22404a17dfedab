// The proof of a deadlock and its text.
//
// The orchestrator records the resource that it waits for (Blocked) before it waits. When the
// platform finds all agents idle, stalled() derives the proof from that record and the rings, logs
// it at once, and latches it as the run's error. At the end of the orchestration, complete() adds
// the plan: the smallest sizes that suffice, and their settings.
#pragma once

#include <atomic>
#include <cstdint>

#include "blocked.hpp"
#include "planner.hpp"
#include "pto/abi/status.h"
#include "pto/engine/context.hpp"

namespace pto::ring_buffer {

// A place in the user's program; `file` NULL is unknown.
struct Place {
  const char* file = nullptr;
  int32_t line = -1;
};

// The data of the report, taken while no agent runs.
struct Proof {
  Blocked blocked;
  Sizes sizes;
  uint64_t used = 0;       // size of the resource, in its unit
  int64_t current = 0;     // number of the ring's next task
  int64_t last_alive = 0;  // number of its oldest task that has not retired
  // Why it stays used: the oldest task alive in the ring, and the open scope that it belongs to.
  // Of clusters: the outermost scope that holds one, and no task.
  int64_t holder = kNoTask;  // task id
  Place holder_place;
  uint32_t scope_depth = 0;
  Place scope_place;
};

// Fill in the data from the rings and the wait: all fields except `used` of a heap, the tensor map
// and the clusters, and the positions of scopes.
Proof take_proof(const Rings& rings, const Blocked& blocked, const Sizes& sizes);

class Deadlock {
 public:
  // Latched for the rest of the run. Any thread may ask.
  bool is_proven() const { return error_.load(std::memory_order_acquire) != nullptr; }
  const pto_error* error() const { return error_.load(std::memory_order_acquire); }
  const Proof& proof() const { return proof_; }

  // Record the proof as the run's error and log it at once. No other thread runs.
  void prove(Context& context, const Proof& proof);

  // Orchestrator, at the end of the orchestration: add the sufficient sizes to the error.
  void complete(const Plan& plan);

  // Between runs.
  void clear() { error_.store(nullptr, std::memory_order_relaxed); }

 private:
  Proof proof_{};
  pto_error proven_{};
  pto_error completed_{};
  std::atomic<const pto_error*> error_{nullptr};
};

}  // namespace pto::ring_buffer
