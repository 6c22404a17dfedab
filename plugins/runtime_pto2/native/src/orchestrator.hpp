// The side of the run that submits: slots, edges, heap, scopes, clusters, waits for room.
//
// One thread at a time owns everything here but blocked() and can_go_on(), which whoever proves a
// deadlock calls while the orchestrator is inside the platform's wait().
//
// The newest submits stay unpublished until a next call: add_dep() may still add edges to the last.
// Whatever waits, or ends a scope, publishes first.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "clusters.hpp"
#include "context.hpp"
#include "options.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/kernel_table.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

class Scheduler;

class Orchestrator {
 public:
  Orchestrator(Context& context, Rings& rings, Clusters& clusters, Scheduler& scheduler)
      : context_(context), rings_(rings), clusters_(clusters), scheduler_(scheduler) {}

  bool create(const Options& options);
  void destroy();
  void begin(const pto_run& run);

  // The id of the task, or of block 0; -1 after an error.
  int64_t submit(pto_tensor_task& task);
  // `to` is the task that was submitted last.
  pto_status add_dep(int64_t from, int64_t to);
  pto_status scope_begin(const char* file, int32_t line);
  pto_status scope_end();
  int32_t allocate_cluster(const char* file, int32_t line);
  pto_status free_cluster(int32_t cluster);
  // Publishes what is left and ends the outermost scope.
  void done();

  // Nobody else runs, and the orchestrator is in wait().
  const Blocked& blocked() const { return blocked_; }
  bool can_go_on();

 private:
  Context& context_;
  Rings& rings_;
  Clusters& clusters_;
  Scheduler& scheduler_;
  Blocked blocked_;
};

}  // namespace pto::ring_buffer
