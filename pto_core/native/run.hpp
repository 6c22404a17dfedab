// One run of a program on a device, from the arguments to the report.
//
// The object lives as long as the call of Device::run. The GIL is held except during waits. If the
// device is lost, the object lives forever, because a thread that never returns may still read its
// data. Only the first error is reported. After the run the device is either ready for the next run
// or lost.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/uio.h>

#include <unistd.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "graph.hpp"
#include "program.hpp"
#include "pto/abi/measurement.h"
#include "task_watch.hpp"

namespace pto::core {

// The measured accesses of a run; see pto/abi/measurement.h.
//
// Collects the ranges that the backend reports. Any thread may add ranges during the run.
//
// With `keeps_bytes` it also copies the bytes of each range that a call wrote, which later calls
// may overwrite. The bytes of all these ranges follow each other in written(). It copies at most
// kMostBytes, in the order of the ranges.
class Measured {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 30;

  explicit Measured(bool keeps_bytes) : keeps_bytes_(keeps_bytes) {}
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;

  const pto_measurement* measurement() const { return &measurement_; }
  // Call it when the run has ended.
  const std::vector<pto_measured_range>& ranges() const { return ranges_; }
  const std::vector<char>& written() const { return written_; }
  static bool keeps_bytes(const pto_measurement& measurement) {
    return static_cast<const Measured*>(measurement.context)->keeps_bytes_;
  }

 private:
  static void add(void* context, const pto_measured_range* ranges, uint64_t count) {
    auto& self = *static_cast<Measured*>(context);
    const std::lock_guard lock(self.mutex_);
    self.ranges_.insert(self.ranges_.end(), ranges, ranges + count);
    if (!self.keeps_bytes_) return;
    for (const pto_measured_range* range = ranges; range != ranges + count; ++range) {
      if (range->kind == PTO_MEASURED_WRITE) self.keep(*range);
    }
  }

  // Copy by a system call, because a kernel that crashed reports addresses that do not exist. Bytes
  // that cannot be read count as zeros.
  void keep(const pto_measured_range& range) {
    const size_t bytes = range.end - range.begin;
    is_full_ = is_full_ || bytes > kMostBytes - written_.size();
    if (is_full_) return;
    written_.resize(written_.size() + bytes);
    const iovec to{written_.data() + written_.size() - bytes, bytes};
    const iovec from{reinterpret_cast<void*>(range.begin), bytes};
    process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  }

  const bool keeps_bytes_;
  bool is_full_ = false;
  std::mutex mutex_;
  std::vector<pto_measured_range> ranges_;
  std::vector<char> written_;
  const pto_measurement measurement_{this, &Measured::add};
};

// The value of pto_call_config.enable_dep_gen of a run whose log keeps the bytes that tasks wrote.
inline constexpr int32_t kLogWithBytes = 2;

// The user's settings for one run.
struct RunSettings {
  pto_call_config call;
  std::optional<double> timeout_s;       // time limit of the run
  std::optional<double> task_timeout_s;  // time limit of each task on a core
  uint32_t hazards;                      // PTO_HAZARDS_*
  bool measures;                         // whether kernels are built to report their accesses
  pto_run_trace* trace;                  // NULL if the run is not traced; outlives the run
  uint64_t stream;                       // the stream to wait for before the run; 0: none
};

// Ends a run: signal handlers on its thread, or a request of another thread. The GIL is held.
class Interrupt {
 public:
  void request() { is_requested_ = true; }
  // Return whether the run must end. Then an exception is set.
  bool is_due();

 private:
  bool is_requested_ = false;
};

class Run {
 public:
  Run(OpenDevice& device, nb::handle device_object, const Program& program, nb::tuple arguments,
      const RunSettings& settings);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Execute the run. Return the fields of pto_core.device.RunReport, in order.
  nb::tuple execute();
  // Called when the device is lost. This object stays alive, but the `rt` of the orchestration no
  // longer refers to it.
  void leave_behind();

  OpenDevice& device() const { return device_; }
  nb::handle device_object() const { return device_object_; }
  const Program& program() const { return program_; }
  const Graph* graph() const { return graph_; }
  // Return whether the run keeps an access log.
  bool is_logged() const { return settings_.call.enable_dep_gen != 0; }
  // Return where the kernels of this run report their accesses; NULL if they are not logged.
  const pto_measurement* measurement() const { return run_.measurement; }
  // Return the name of a core, such as "AIC 3" or "AIV 7".
  std::string core_name(int32_t core) const;
  // Raise RunTimeoutError, and end the run, if its limit has passed.
  void require_time() {
    if (limit_ns_ != UINT64_MAX || late_task_) check_time();
  }

  // The backend calls this, without the GIL, while a call of `rt` waits. Signals and time limits
  // end the run.
  void attend();
  Interrupt interrupt;

  // For a failed submit: raise the error that the runtime has recorded or, if it has recorded none,
  // an error for `status`.
  [[noreturn]] void raise_latched(pto_status status);
  void keep_failure(uint64_t task, const nb::object& exception);
  void keep_temporary(std::shared_ptr<Buffer> buffer) { temporaries_.push_back(std::move(buffer)); }

 private:
  void start();
  void end_early();
  void orchestrate();
  void keep_orchestration_failure(nb::object failure);
  void judge_result(nb::handle result, bool is_copied);
  void check_time();
  uint64_t task_limit_ns() const;
  [[noreturn]] void raise_late();
  void wait_until_over();
  bool wait_slice(uint64_t nanoseconds);
  void drain();
  void give_up();
  void stop(const char* why);
  void finish();
  void conclude();
  void raise_interruption();
  [[noreturn]] void raise_timeout();
  void raise_native_error();
  void complete_latched();
  nb::object final_exception();
  nb::tuple report() const;
  std::string kernel_name(int32_t func_id) const;
  // Return the names of the kernel, the task and the core.
  std::string describe(const RunningTask& task) const;

  OpenDevice& device_;
  nb::handle device_object_;
  const Program& program_;
  const RunSettings settings_;
  Arguments arguments_;
  std::vector<std::shared_ptr<Buffer>> temporaries_;
  std::vector<pto_kernel_entry> kernels_;
  Measured measured_{settings_.call.enable_dep_gen == kLogWithBytes};
  pto_run run_{};  // the backend reads it, and the data that it references, until finish()

  nb::object graph_object_;
  Graph* graph_ = nullptr;            // set for a Python orchestration
  nb::object latched_;                // the exception that a submit raised for a native error
  nb::object orchestration_failure_;  // the exception of the orchestration
  nb::object interruption_;           // the exception of a signal handler
  std::vector<std::pair<uint64_t, nb::object>> failures_;  // exceptions of Python kernels, by task

  uint64_t begin_ns_ = 0;
  uint64_t limit_ns_ = UINT64_MAX;        // timeout_s in nanoseconds, counted from begin_ns_
  std::optional<RunningTask> late_task_;  // the task that ran longer than task_timeout_s
  bool is_late_ = false;                  // the run took longer than timeout_s
  nb::object raised_late_;  // the exception that a call of rt raised because the run took too long
  bool was_stopped_ = false;
  std::string state_;                      // when a signal or a time limit stopped the run
  bool is_in_progress_ = false;            // whether the run was started and is not finished
  std::optional<RunningTask> stuck_task_;  // the task that caused the loss of the device
  pto_status status_ = PTO_OK;
  pto_error error_;
  pto_run_report report_;
};

// The access log of a run, for Python.
//
// Return the fields of pto_insight.graphs.AccessLog for the run that just ended. The runtime must
// keep a log.
nb::object read_access_log(const OpenDevice& device, const RunSettings& settings,
                           const Arguments& arguments,
                           const std::vector<std::shared_ptr<Buffer>>& temporaries,
                           const Measured& measured,
                           const std::function<std::string(int32_t)>& kernel_name);

}  // namespace pto::core
