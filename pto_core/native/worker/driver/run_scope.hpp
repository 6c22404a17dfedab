// RunScope: the owner of an open run or capture, and the base class of the blocks that run in it.
//
// A signal handler can interrupt Python code between any two byte codes, so Python code cannot
// guarantee that it ends its run. `__exit__` is native: when it returns or raises, the run is over,
// and the next thread has the turn. If the object is destroyed without `__exit__`, its run is
// cancelled, and the next run waits for its end.
#pragma once

#include <nanobind/nanobind.h>

#include "driver/worker_driver.hpp"

namespace pto::worker {

// Call the methods with the GIL held.
class RunScope {
 public:
  RunScope() = default;
  ~RunScope();
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

  // Take the turn for `thread` before begin(), which otherwise takes it. `waits`: wait until the
  // turn is free. Return whether it was taken.
  bool take_turn(nb::object driver, uint64_t thread, bool waits);
  // Wait for the turn, begin a run or a capture, and return its Orchestrator. If the driver refuses
  // the run, this throws, and the object owns no run.
  nb::object begin(nb::object driver, Hazards hazards, nb::handle config);
  nb::object begin_capture(nb::object driver, Hazards hazards, nb::handle config, TaskArgs* args);
  // Begin a run to which only WorkerDriver::replay() adds tasks.
  void begin_replay(nb::object driver, const CapturedObject& captured, TaskArgs* args);
  CapturedObject end_capture();
  // Cancel the run, as Ctrl-C does, or end the wait of take_turn() with UsageError. Return at once.
  void interrupt();
  // Call `self._leave(error)`, which ends the run. If that call raises before it has ended the run,
  // end it here. A capture is dropped without that call.
  static void exit(nb::handle self, nb::handle error);

 private:
  template <class Begin>
  void own(const nb::object& driver, const char* what, Begin begin);
  RunObject* run() const { return reinterpret_cast<RunObject*>(run_.ptr()); }
  WorkerDriver& driver() const { return *nb::inst_ptr<WorkerDriver>(driver_); }
  bool is_open() const { return run_.is_valid() && driver().is_open(*run()); }
  void end();

  // From the start of a run or capture until __exit__ returns. The turn is released first.
  nb::object driver_;
  nb::object run_;  // a RunObject
  Turn turn_;
  bool is_interrupted_ = false;
};

void bind_run_scope(nb::module_& module);

}  // namespace pto::worker
