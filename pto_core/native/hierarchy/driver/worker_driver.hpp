// The Python side of a Driver: converts objects to numbers, and errors to exceptions.
//
// Any thread may call it with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "driver/captures.hpp"
#include "driver/child_memory.hpp"
#include "driver/child_places.hpp"
#include "driver/driver.hpp"
#include "driver/or_error.hpp"
#include "driver/python_host.hpp"
#include "driver/submits.hpp"
#include "processes/current_process.hpp"

namespace pto::hierarchy {

struct RunObject;

class WorkerDriver {
 public:
  WorkerDriver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
               nb::object hooks, const WorkerSettings& settings);
  ~WorkerDriver();

  // Return the driver. Raise UsageError in a forked process, which does not have the threads of the
  // driver.
  Driver& driver() {
    if (process_ != current_process()) refuse_fork();
    return *driver_;
  }
  nb::object& hooks() { return host_->hooks(); }
  ChildMemory& child_memory() { return child_memory_; }
  Captures& captures() { return captures_; }
  Submits& submits() { return submits_; }

  void run_begin(nb::object self, Hazards hazards, nb::handle config);
  void run_end(bool is_interrupted);
  // The outcomes of the open run.
  const std::shared_ptr<RunOutcomes>& outcomes() const;
  // Return whether the run with those outcomes is open.
  bool is_open(const RunOutcomes& outcomes) const;
  // Return whether a run is open that its owner can still end.
  bool is_running() { return driver().flags().is_running && !is_abandoned_; }
  // Cancel the open run because its owner no longer exists. The next run waits until the cancelled
  // run has ended.
  void abandon() noexcept;
  void end_run_without_owner();
  // Cancel the open run and end it, even if signal handlers raise exceptions during the call.
  void end_abandoned() noexcept;

  // Between the begin and the end of a capture, submits are recorded and no task runs. `args`: the
  // TaskArgs of the graph.
  void capture_begin(nb::object self, Hazards hazards, nb::handle config, TaskArgs* args);
  CapturedObject capture_end();
  // End a capture whose graph function raised an exception.
  void capture_abandon();
  // Begin a run of the graph on the tensors of `args`; replay() and run_end() follow.
  void replay_begin(nb::object self, const CapturedObject& captured, TaskArgs* args);
  // Submit all tasks of the graph. Until this returns, other submits are refused, because the
  // captured edges are distances between task numbers.
  void replay();

  void stop(int64_t cause);
  void close();
  // Raise UsageError on a thread that is inside a call of the driver.
  void refuse_inside() const;

 private:
  [[noreturn]] void refuse_fork() const;
  // Set the open run; take ownership of the reference.
  void set_run(RunObject* run, uint32_t config);
  void leave_to_own_thread();
  void close_driver() noexcept;

  std::unique_ptr<PythonHost> host_;
  std::unique_ptr<Driver> driver_;
  const WorkerSettings settings_;
  const pid_t process_;
  OpenRun run_;
  bool is_abandoned_ = false;  // whether the run is open although no Python object owns it
  ChildMemory child_memory_;
  ChildPlaces child_places_;
  Captures captures_;
  Submits submits_;
};

}  // namespace pto::hierarchy
