// RunScope: the owner of an open run, and the base class of the blocks that run in it.
//
// A signal handler can interrupt Python code between any two byte codes, so Python code cannot
// guarantee that it ends its run. `__exit__` is native: when it returns or raises, the run is over.
// If the object is destroyed without `__exit__`, its run is cancelled, and the next run waits for
// its end.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "driver/outcomes.hpp"
#include "driver/worker_driver.hpp"

namespace pto::hierarchy {

class RunScope {
 public:
  RunScope() = default;
  ~RunScope();
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

  // Begin a run. Call with the GIL held. If the run is refused, this throws and the object owns no
  // run.
  void begin(nb::object driver, Hazards hazards, nb::handle config);
  void begin_replay(nb::object driver, const CapturedObject& captured, TaskArgs* args);
  // Call `self._leave(error)`, which ends the run. If that call raises before it has ended the run,
  // end it here.
  static void exit(nb::handle self, nb::handle error);

 private:
  void own(nb::object driver);
  bool is_open() const;

  nb::object object_;  // the driver, from the start of a run until __exit__ returns
  WorkerDriver* driver_ = nullptr;
  std::shared_ptr<RunOutcomes> outcomes_;
};

void bind_run_scope(nb::module_& module);

}  // namespace pto::hierarchy
