// The data that the classes of the submit path share.
//
// Used by the orchestrator only, except for the members whose classes state otherwise.
#pragma once

#include "clusters.hpp"
#include "free_space.hpp"
#include "pto/engine/access_log.hpp"
#include "pto/engine/context.hpp"
#include "pto/engine/scope_stack.hpp"
#include "rings.hpp"
#include "scheduler.hpp"
#include "sizing.hpp"
#include "statistics.hpp"
#include "stream.hpp"

namespace pto::ring_buffer {

using Scopes = ScopeStack<kRings>;

struct RunState {
  RunState(Context& shared_context, Rings& shared_rings, Clusters& shared_clusters,
           Scheduler& shared_scheduler)
      : context(shared_context),
        rings(shared_rings),
        clusters(shared_clusters),
        scheduler(shared_scheduler),
        stream(shared_context, shared_rings, shared_scheduler),
        space(shared_rings),
        log(shared_context.memory) {}

  // Add a row to the access log: add(log) returns false if memory is exhausted, which fails the
  // run.
  template <class Add>
  void log_if_on(Add add) {
    if (log.is_on() && !add(log)) reject_log();
  }

  bool has_failed() const { return context.latch.is_set(); }

  Context& context;
  Rings& rings;
  Clusters& clusters;
  Scheduler& scheduler;
  Stream stream;
  FreeSpace space;
  engine::AccessLog log;
  Scopes scopes;
  Sizes sizes;
  RunStatistics statistics = {};
  bool is_full = false;  // whether the run has full hazards

 private:
  [[gnu::cold, gnu::noinline]] void reject_log() {
    context.fail({PTO_ERROR_MEMORY},
                 "no memory for the access log; run a smaller program with enable_dep_gen");
  }
};

}  // namespace pto::ring_buffer
