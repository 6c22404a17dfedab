// One attached runtime: the state of a device's run, behind pto_runtime_api.
#pragma once

#include <cstdint>

#include "diagnosis.hpp"
#include "graph.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/runtime_table.hpp"
#include "pto_build_graph_calls.h"
#include "scheduler.hpp"
#include "variant.hpp"

namespace pto::build_graph {

struct Options {
  uint32_t build_mode = 1;  // 1: schedule during the build; 0: first build, then schedule

  pto_status read(const pto_option* options, uint32_t count, pto_error* error);
};

class Instance {
 public:
  using Options = build_graph::Options;

  static const char* variant_name() { return variant.name; }

  Instance(const pto_platform* platform, const Options& options)
      : build_mode_(options.build_mode),
        context_(platform),
        graph_(context_),
        scheduler_(context_, graph_) {}

  engine::Shortage create() {
    if (graph_.create() && scheduler_.create()) return {};
    return {"the tables", nullptr};
  }
  void destroy();

  pto_status begin(const pto_run& run);
  pto_status orchestrate();
  void orchestration_done(int32_t result);

  int64_t submit(const pto_task& task) { return graph_.add_task(task); }
  pto_status add_edge(int64_t from, int64_t to) { return graph_.add_edge(from, to); }
  pto_status publish(int64_t task);

  size_t export_graph(void* out, size_t capacity);
  pto_status import_graph(const void* image, size_t bytes);

  int32_t step(uint32_t thread) { return scheduler_.step(thread); }
  int32_t stalled();
  pto_status finalise();
  void end();
  void abort(const pto_error* cause);

  const pto_error* last_error() { return context_.latch.error(); }
  uint32_t statistics(pto_statistic* out, uint32_t capacity) const;
  size_t explain(char* out, size_t capacity) const {
    return build_graph::explain(graph_, scheduler_, variant.name, out, capacity);
  }

  Context& context() { return context_; }
  Graph& graph() { return graph_; }
  uint32_t build_mode() const { return build_mode_; }

 private:
  uint32_t build_mode_;
  const pto_run* run_ = nullptr;
  Context context_;
  Graph graph_;
  Scheduler scheduler_;
};

// The table that an orchestration library receives; its `graph` is an Instance.
pto_build_graph_calls orchestration_calls(uint32_t build_mode);

}  // namespace pto::build_graph
