// One attached runtime: the state of a device's run, behind pto_runtime_api.
#pragma once

#include <cstdint>

#include "clusters.hpp"
#include "orchestrator.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/context.hpp"
#include "pto2_calls.h"
#include "rings.hpp"
#include "scheduler.hpp"

namespace pto::ring_buffer {

constexpr const char* kVariant = "tensormap_and_ringbuffer";

class Instance {
 public:
  using Options = ring_buffer::Options;

  static constexpr const char* variant_name() { return kVariant; }

  Instance(const pto_platform* platform, const Options& options)
      : options_(options),
        context_(platform),
        clusters_(context_, rings_),
        scheduler_(context_, rings_, clusters_),
        orchestrator_(context_, rings_, clusters_, scheduler_) {}

  // Call destroy() even if create() fails because memory is exhausted.
  Shortage create();
  void destroy();

  pto_status begin(const pto_run& run);
  pto_status orchestrate();
  void orchestration_done(int32_t result);

  pto_status add_edge(int64_t from, int64_t to) { return orchestrator_.add_dep(from, to); }

  int32_t step(uint32_t thread) { return scheduler_.step(thread); }
  int32_t stalled();
  pto_status finalise() { return last_error()->status; }
  void end();
  void abort(const pto_error* cause);

  // Return whether submits may state edges that the record of a graph knows.
  bool knows_edges() const;
  const pto_error* last_error();
  uint32_t statistics(pto_statistic* out, uint32_t capacity) const;
  size_t explain(char* out, size_t capacity);

  Context& context() { return context_; }
  Orchestrator& orchestrator() { return orchestrator_; }

 private:
  const Options options_;
  const pto_run* run_ = nullptr;
  Context context_;
  Rings rings_;
  Clusters clusters_;
  Scheduler scheduler_;
  Orchestrator orchestrator_;
};

// The table that an orchestration library receives; its member `runtime` points to an Instance.
pto2_calls orchestration_calls();

}  // namespace pto::ring_buffer
