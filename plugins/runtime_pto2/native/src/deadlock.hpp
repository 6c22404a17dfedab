// The proof of a deadlock and its text.
//
// Before the orchestrator waits, it records the resource for which it waits (Blocked). When the
// platform finds all agents idle, stalled() derives the proof from this record and the rings, logs
// it at once, and latches it as the error of the run. At the end of the orchestration, complete()
// adds the plan to the error: the smallest sizes that suffice, and the settings for them.
#pragma once

#include <atomic>
#include <cstdint>

#include "blocked.hpp"
#include "planner.hpp"
#include "pto/abi/status.h"
#include "pto/engine/context.hpp"

namespace pto::ring_buffer {

// A position in the user's program. `file` is NULL if it is unknown.
struct CallSite {
  const char* file = nullptr;
  int32_t line = -1;
};

// The data of the report. It is read while no agent runs.
struct Proof {
  Blocked blocked;
  Sizes sizes;
  uint64_t used = 0;       // the used amount of the resource, in its unit
  int64_t current = 0;     // number of the ring's next task
  int64_t last_alive = 0;  // number of its oldest task that has not retired
  // The reason why the resource stays in use: the oldest live task of the ring, and the open scope
  // to which this task belongs. For clusters there is no task, and the scope is the outermost one
  // that holds a cluster.
  int64_t holder = kNoTask;  // task id
  CallSite holder_place;
  uint32_t scope_depth = 0;
  CallSite scope_place;
};

// Return the data that the rings and the wait contain. The caller adds the positions of scopes, and
// `used` for a heap, the tensor map and the clusters.
Proof take_proof(const Rings& rings, const Blocked& blocked, const Sizes& sizes);

class Deadlock {
 public:
  // Return whether a deadlock has been proven. A result of true stays true for the rest of the run.
  // Any thread may call this.
  bool is_proven() const { return error_.load(std::memory_order_acquire) != nullptr; }
  const pto_error* error() const { return error_.load(std::memory_order_acquire); }
  const Proof& proof() const { return proof_; }

  // Record the proof as the error of the run. Called while no other thread runs.
  void prove(const Proof& proof);

  // Called by the orchestrator at the end of the orchestration: add the sufficient sizes to the
  // error.
  void complete(const Plan& plan);

  // Called between runs.
  void clear() { error_.store(nullptr, std::memory_order_relaxed); }

 private:
  Proof proof_{};
  pto_error proven_{};
  pto_error completed_{};
  std::atomic<const pto_error*> error_{nullptr};
};

}  // namespace pto::ring_buffer
