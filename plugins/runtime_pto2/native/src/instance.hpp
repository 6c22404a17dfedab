// One attached runtime: the state of a device's run, behind pto_runtime_api.
#pragma once

#include <cstdint>

#include "clusters.hpp"
#include "context.hpp"
#include "orchestrator.hpp"
#include "pto/abi/runtime.h"
#include "pto2_calls.h"
#include "rings.hpp"
#include "scheduler.hpp"

namespace pto::ring_buffer {

constexpr const char* kVariant = "tensormap_and_ringbuffer";

class Instance {
 public:
  explicit Instance(const pto_platform* platform)
      : context_(platform),
        clusters_(context_, rings_),
        scheduler_(context_, rings_, clusters_),
        orchestrator_(context_, rings_, clusters_, scheduler_) {}

  // destroy() is to be called also after a shortage.
  Shortage create(const Options& options);
  void destroy();

  pto_status begin(const pto_run& run);
  pto_status orchestrate();
  void orchestration_done(int32_t result);

  int32_t step(uint32_t thread) { return scheduler_.step(thread); }
  int32_t stalled();
  pto_status finalise() { return last_error()->status; }
  void end();
  void abort(const pto_error* cause);

  const pto_error* last_error();
  uint32_t statistics(pto_statistic* out, uint32_t capacity) const;
  size_t explain(char* out, size_t capacity);

  Context& context() { return context_; }
  Orchestrator& orchestrator() { return orchestrator_; }

 private:
  const pto_run* run_ = nullptr;
  Context context_;
  Rings rings_;
  Clusters clusters_;
  Scheduler scheduler_;
  Orchestrator orchestrator_;
};

// The table that an orchestration library gets; its `runtime` is an Instance.
pto2_calls orchestration_calls();

}  // namespace pto::ring_buffer
