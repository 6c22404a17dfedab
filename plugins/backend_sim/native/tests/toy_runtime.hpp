// A minimal runtime variant for tests, written against the ABI only. It has explicit edges, one
// queue per scheduler and one lock around the graph. If `window` is set, a submit blocks while that
// many tasks are alive.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "pto/abi/runtime.h"

namespace toy {

enum Variant { host_built, concurrent };

const pto_runtime_api* table(Variant variant);

class Runtime;

// The orchestration of a test. If run->library is set, run->args[0] points to it.
using Program = std::function<int32_t(Runtime&)>;

struct Task {
  int32_t func_id = 0;
  int32_t core_type = 0;
  uint32_t waits_for = 0;
  bool completed = false;
  std::vector<uint64_t> args;
  std::vector<int64_t> successors;
};

class Runtime {
 public:
  explicit Runtime(const pto_platform* platform) : platform_(*platform) {}

  // The interface for orchestrations.
  int64_t submit(int32_t func_id, int32_t core_type, std::vector<uint64_t> args = {},
                 std::vector<int64_t> after = {});
  const pto_platform& platform() const { return platform_; }
  // Number of tasks that may be alive at once; 0 means no limit.
  void set_window(uint32_t window) { window_ = window; }
  // Holds back the next submitted task until stalled() releases it, or forever if `keeps_hold` is
  // set.
  void hold_next() { holds_next_ = true; }
  void set_keeps_hold(bool keeps) { keeps_hold_ = keeps; }
  // Lets submits continue after a deadlock without running kernels; the final error reports their
  // number.
  void set_plans(bool plans) { plans_ = plans; }
  bool planning() const { return planned_ != 0; }
  // Called by stalled() before its checks, while the orchestrator waits or is done.
  std::function<void()> at_stall = [] {};
  // Whether the orchestrator is inside the platform's wait().
  std::atomic<bool> is_in_wait{false};
  // The number of calls of attend() that the backend has made.
  std::atomic<int> attended{0};
  // Ends the run with an error, unless it already has one.
  void latch(pto_status status, const char* message);

  // The functions of the runtime table.
  pto_status begin(const pto_run* run);
  pto_status orchestrate();
  void orchestration_done(int32_t result);
  int64_t submit(const pto_task& task);
  pto_status add_edge(int64_t from, int64_t to);
  int32_t schedule_step(uint32_t thread);
  int32_t stalled();
  void end();
  void abort(const pto_error* cause);
  const pto_error* last_error() const { return &error_; }

 private:
  int64_t plan();
  void make_ready(int64_t task);
  void complete(uint32_t core, uint32_t thread);
  void fill_cores(uint32_t thread);

  const pto_platform& platform_;
  const pto_run* run_ = nullptr;
  std::mutex mutex_;
  std::vector<Task> tasks_;
  std::vector<int64_t> ready_[PTO_MAX_AICPU_THREADS];
  std::vector<int64_t> held_;
  bool holds_next_ = false;
  bool keeps_hold_ = false;
  bool plans_ = false;
  int64_t planned_ = 0;  // used by the orchestrator only
  std::atomic<bool> aborted_{false};
  int64_t on_core_[PTO_MAX_CORES];
  bool submitted_all_ = false;
  uint32_t window_ = 0;
  // number of completed tasks; a blocked submit waits until this word changes
  uint32_t completed_ = 0;
  pto_error error_{};
};

}  // namespace toy
