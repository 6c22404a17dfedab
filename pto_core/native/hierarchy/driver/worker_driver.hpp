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
#include "driver/turns.hpp"
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

  // Take the turn for `thread`, and wait for it if `waits`. Return whether it was taken. Raise
  // UsageError if the thread has the turn or waits for it, and when `is_interrupted` becomes true.
  // `what`: the call, for messages.
  bool take_turn(uint64_t thread, const char* what, bool waits, const bool* is_interrupted);
  Turns& turns() { return turns_; }

  // The caller of these methods has the turn. The begin returns the open run, a RunObject.
  nb::object run_begin(nb::object self, Hazards hazards, nb::handle config);
  void run_end(bool is_interrupted);
  // Return whether this run or capture is open.
  bool is_open(const RunObject& run) const;
  // Drop the objects of the last run or capture, which is over.
  void forget_run();
  // Return whether a run is open that its owner can still end.
  bool is_running() { return driver().flags().is_running && !is_abandoned_; }
  // Cancel the open run because its owner no longer exists. The next run waits until the cancelled
  // run has ended.
  void abandon() noexcept;
  void end_run_without_owner();
  // Cancel the open run and end it, even if signal handlers raise exceptions during the call.
  void end_abandoned() noexcept;

  // Begin a capture, until captures() ends it: submits are recorded and no task runs. `args`: the
  // TaskArgs of the graph.
  nb::object capture_begin(nb::object self, Hazards hazards, nb::handle config, TaskArgs* args);
  // Begin a run of the graph on the tensors of `args`; replay() and run_end() follow.
  nb::object replay_begin(nb::object self, const CapturedObject& captured, TaskArgs* args);
  // Submit all tasks of the graph. A replay has no orchestrator, so no other task comes between
  // them: the captured edges are distances between task numbers.
  void replay();

  void stop(int64_t cause);
  void close();
  // Raise UsageError on a thread that is inside a call of the driver.
  void refuse_inside() const;

 private:
  [[noreturn]] void refuse_fork() const;
  nb::object make_run(const nb::object& self, std::shared_ptr<RunOutcomes> outcomes,
                      uint32_t config);
  void leave_to_own_thread();
  void close_driver() noexcept;

  std::unique_ptr<PythonHost> host_;
  std::unique_ptr<Driver> driver_;
  const WorkerSettings settings_;
  const pid_t process_;
  RunObject* run_ = nullptr;   // an owned reference: the run or capture, until forget_run()
  bool is_abandoned_ = false;  // whether the run is open although no Python object owns it
  ChildMemory child_memory_;
  ChildPlaces child_places_;
  Captures captures_;
  Turns turns_;
  Submits submits_;
};

}  // namespace pto::hierarchy
