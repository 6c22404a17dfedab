// A Driver as Python has it: objects turned into numbers, numbers into exceptions.
//
// Used with the GIL, by any thread.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "driver/captures.hpp"
#include "driver/child_memory.hpp"
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

  // Raises in a fork of the program: nobody drives it there.
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
  // Of the run that has begun.
  const std::shared_ptr<RunOutcomes>& outcomes() const;
  // Whether the run with those outcomes is open.
  bool is_open(const RunOutcomes& outcomes) const;
  // Whether a run is open that somebody can still end.
  bool is_running() { return driver().flags().is_running && !is_abandoned_; }
  // The owner of the open run is gone: cancels it, at the latest when the next run begins and waits
  // for its end.
  void abandon() noexcept;
  void end_run_without_owner();
  // Cancels the open run and ends it, whatever handlers of signals raise meanwhile.
  void end_abandoned() noexcept;

  // Between the two submits are recorded and nothing runs. `args`: the TaskArgs of the graph.
  void capture_begin(nb::object self, Hazards hazards, nb::handle config, TaskArgs* args);
  CapturedObject capture_end();
  // Ends a capture whose graph raised.
  void capture_abandon();
  // Begins a run for the graph, on the tensors of `args`; replay() and run_end() follow.
  void replay_begin(nb::object self, const CapturedObject& captured, TaskArgs* args);
  // All submits of the graph. Nobody else adds to the run before it is over: edges are distances.
  void replay();

  void stop(int64_t cause);
  void close();
  // Raises UsageError on a thread that is in a call of the driver, by which it came here.
  void refuse_inside() const;

 private:
  [[noreturn]] void refuse_fork() const;
  // Takes the reference.
  void set_run(RunObject* run, uint32_t config);
  void leave_to_own_thread();
  void close_driver() noexcept;

  std::unique_ptr<PythonHost> host_;
  std::unique_ptr<Driver> driver_;
  const WorkerSettings settings_;
  const pid_t process_;
  OpenRun run_;
  bool is_abandoned_ = false;  // the run; its owner is gone
  ChildMemory child_memory_;
  Captures captures_;
  Submits submits_;
};

}  // namespace pto::hierarchy
