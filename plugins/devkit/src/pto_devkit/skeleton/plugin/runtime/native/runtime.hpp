// One attached runtime: the scheduler that dispatches the tasks of a run to cores.
//
// A task is ready when all tasks with an edge to it have completed; tasks start in the order in
// which they became ready. One thread builds the graph. After that only schedulers use it, each
// inside schedule_step() and for its own cores. A scheduler that finds the graph in use by another
// one returns, and the backend steps it again.
//
// This code also runs on an AICPU. It uses no exceptions, threads or thread-local storage, and of
// the C and C++ libraries only headers and the functions mem* and str*.
#pragma once

#include <atomic>
#include <cstdint>

#include "graph.hpp"
#include "pto/engine/runtime_table.hpp"

namespace pto_runtime_template {

extern const pto_runtime_api table;

// A variant without options.
struct NoOptions {
  pto_status read(const pto_option* options, uint32_t count, pto_error* error);
};

class Runtime {
 public:
  using Options = NoOptions;
  static constexpr const char* variant_name() { return "template"; }

  Runtime(const pto_platform* platform, const Options&) : context_(platform), graph_(context_) {}

  // The functions of the runtime table; see pto/abi/runtime.h and pto/engine/runtime_table.hpp.
  pto::engine::Shortage create() { return {graph_.create() ? nullptr : "the tables", nullptr}; }
  void destroy() { graph_.destroy(); }
  pto_status begin(const pto_run& run);
  pto_status orchestrate();
  void orchestration_done(int32_t result);
  pto_status add_edge(int64_t from, int64_t to) { return graph_.add_edge(from, to); }
  int32_t step(uint32_t thread);
  int32_t stalled();
  pto_status finalise() { return context_.latch.status(); }
  void end() { context_.latch.clear(); }
  void abort(const pto_error* cause) { context_.abort(cause, completed_); }
  const pto_error* last_error() { return context_.latch.error(); }
  uint32_t statistics(pto_statistic* out, uint32_t capacity) const;
  size_t explain(char* out, size_t capacity) const;
  pto::engine::Context& context() { return context_; }
  Graph& graph() { return graph_; }

 private:
  struct Queue {
    int64_t first = kNone, last = kNone;
  };

  void make_ready(int64_t id);
  int32_t step_alone(uint32_t thread);
  uint32_t collect(uint32_t thread);
  void latch_fault(uint32_t core);
  void complete(uint32_t thread, uint32_t core);
  uint32_t fill_cores(uint32_t thread, pto_dispatch* batch);
  void wake_others(uint32_t thread);

  pto::engine::Context context_;
  Graph graph_;
  const pto_run* run_ = nullptr;
  std::atomic_flag is_stepping_ = ATOMIC_FLAG_INIT;  // the caller of step_alone() owns the graph
  Queue ready_[PTO_CORE_TYPES];
  std::atomic<int64_t> completed_{0};  // explain() reads it on any thread
  uint64_t ready_count_ = 0, ready_peak_ = 0;
  int64_t running_[PTO_MAX_CORES];  // task of each core, kNone if it has none
};

}  // namespace pto_runtime_template
