// One attached runtime: the state of a device's run, behind pto_runtime_api.
#pragma once

#include <cstdint>

#include "diagnosis.hpp"
#include "graph.hpp"
#include "pto/abi/runtime.h"
#include "pto_build_graph_calls.h"
#include "scheduler.hpp"
#include "variant.hpp"

namespace pto::build_graph {

class Instance {
 public:
  Instance(const pto_platform* platform, uint32_t build_mode)
      : build_mode_(build_mode),
        context_(platform),
        graph_(context_),
        scheduler_(context_, graph_) {}

  bool create() { return graph_.create() && scheduler_.create(); }
  void destroy();

  pto_status begin(const pto_run& run);
  pto_status orchestrate();
  void orchestration_done(int32_t result);

  int64_t submit(const pto_task& task) { return graph_.add_task(task); }
  pto_status add_edge(int64_t from, int64_t to) { return graph_.add_edge(from, to); }
  pto_status publish(int64_t task);

  int32_t step(uint32_t thread) { return scheduler_.step(thread); }
  int32_t stalled();
  pto_status finalise();
  void end();
  void abort(const pto_error* cause);

  uint32_t statistics(pto_statistic* out, uint32_t capacity) const;

  Context& context() { return context_; }
  Graph& graph() { return graph_; }
  const Scheduler& scheduler() const { return scheduler_; }
  uint32_t build_mode() const { return build_mode_; }

 private:
  uint32_t build_mode_;
  const pto_run* run_ = nullptr;
  Context context_;
  Graph graph_;
  Scheduler scheduler_;
};

// The table that an orchestration library gets; its `graph` is an Instance.
pto_build_graph_calls orchestration_calls(uint32_t build_mode);

}  // namespace pto::build_graph
