// One attached runtime: the tasks of a run, and the scheduler that dispatches them to cores.
//
// A task is ready when all tasks with an edge to it have completed; tasks start in the order in
// which they became ready. One thread builds the graph. After that only schedulers use the graph,
// each inside schedule_step() and for its own cores.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pto/abi/runtime.h"
#include "pto/engine/latch.hpp"

namespace pto_runtime_template {

struct Task {
  std::vector<uint64_t> payload;  // the dispatched payload: header and arguments
  int32_t core_type;
  int32_t waits = 0;  // number of predecessors that have not completed
  bool is_complete = false;
  std::vector<int64_t> successors;
};

class Runtime {
 public:
  explicit Runtime(const pto_platform& platform) : platform_(platform) {}
  Runtime(const Runtime&) = delete;

  // The functions of the runtime table; see pto/abi/runtime.h.
  pto_status begin(const pto_run& run);
  pto_status orchestrate(const pto_runtime_api& api);
  void orchestration_done(int32_t result);
  int64_t submit(const pto_task& task);
  pto_status add_edge(int64_t from, int64_t to);
  int32_t schedule_step(uint32_t thread);
  int32_t stalled();
  void end();
  void abort(const pto_error* cause);
  const pto_error* last_error() const { return latch_.error(); }
  uint32_t statistics(pto_statistic* out, uint32_t capacity) const;
  std::string explain() const;

  // Ends the run with an error, unless it already has one; returns the status of the run.
  pto_status fail(const pto::engine::ErrorFacts& facts, auto... sentence) {
    latch_.latch(facts, sentence...);
    return latch_.status();
  }

 private:
  bool has_task(int64_t task) const;
  pto_status check(const pto_task& task);
  int64_t add(const pto_task& task);
  void make_ready(int64_t task);
  uint32_t collect(uint32_t thread);
  void latch_fault(uint32_t core);
  void complete(uint32_t core);
  uint32_t fill_cores(uint32_t thread, pto_dispatch* batch);
  void wake_others(uint32_t thread);
  std::vector<int64_t> cycle() const;

  const pto_platform& platform_;
  const pto_run* run_ = nullptr;
  pto::engine::ErrorLatch latch_;
  std::map<int32_t, pto_kernel_entry> kernels_;  // key: the function id

  // Guards the graph. Never held during a call of the platform.
  mutable std::mutex mutex_;
  std::vector<Task> tasks_;
  std::deque<int64_t> ready_[PTO_CORE_TYPES];
  size_t complete_ = 0;  // tasks
  uint64_t edges_ = 0, ready_peak_ = 0;

  // task of each core, -1 for none; only the core's scheduler accesses it
  int64_t running_[PTO_MAX_CORES];
};

}  // namespace pto_runtime_template
