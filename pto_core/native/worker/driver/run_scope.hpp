// RunScope: the owner of an open run or capture, and the base class of the blocks that run in it.
//
// A signal handler can interrupt Python code between any two byte codes, so Python code cannot
// guarantee that it ends its run. `__exit__` is native: when it returns or raises, the run is over,
// and its turn is free. If the object is destroyed without `__exit__`, its run is
// cancelled, and the next run waits for its end.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "driver/worker_driver.hpp"
#include "processes/protected_pages.hpp"

namespace pto::worker {

// Call the methods with the GIL held.
class RunScope : public ProtectedPages::Owner {
 public:
  RunScope() = default;
  ~RunScope();
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

  // Take the turn for `thread` before begin(), which otherwise takes it. `waits`: wait until the
  // turn is free. Return whether it was taken.
  bool take_turn(nb::object driver, Hazards hazards, uint64_t thread, bool waits);
  // Wait for the turn, begin a run or a capture, and return its Orchestrator. If the driver refuses
  // the run, this throws, and the object owns no run.
  nb::object begin(nb::object driver, Hazards hazards, nb::handle config);
  nb::object begin_capture(nb::object driver, Hazards hazards, nb::handle config, TaskArgs* args);
  // Begin a run to which only WorkerDriver::replay() adds tasks.
  void begin_replay(nb::object driver, const CapturedObject& captured, TaskArgs* args);
  CapturedObject end_capture();
  // Cancel the run, as Ctrl-C does, or end the wait of take_turn() with UsageError. Return at once.
  void interrupt();
  // Until the end of the run, report accesses of the program to the ranges of protect(), which are
  // in the mapping. Each report is an entry in `records`: (number, whether it is a write, file and
  // line of each frame, identifier of the thread). The thread gets an exception of class `error`
  // at its next call or loop. A thread without Python code sets foreign_access() to the number.
  void watch_accesses(AddressSpan mapping, nb::list records, nb::type_object error);
  void protect(std::vector<UsedRange> used);
  int64_t foreign_access() const { return foreign_access_; }
  // Drop the exception that this thread was to get, because the end of the run reports the access.
  // Return another exception that was pending, such as KeyboardInterrupt, or None.
  nb::object withdraw_error();
  // Call `self._leave(error)`, which ends the run. If that call raises before it has ended the run,
  // end it here. A capture is dropped without that call.
  static void exit(nb::handle self, nb::handle error);
  // Return the run, or null before its start, after `__exit__`, and for a capture.
  std::shared_ptr<RunOutcomes> outcomes() const;

  int64_t number = 0;  // the number of the run in the Worker

 private:
  template <class Begin>
  void own(const nb::object& driver, TurnUse use, const char* what, Begin begin);
  RunObject* run() const { return reinterpret_cast<RunObject*>(run_.ptr()); }
  WorkerDriver& driver() const { return *nb::inst_ptr<WorkerDriver>(driver_); }
  bool is_open() const { return run_.is_valid() && driver().is_open(*run()); }
  void end();
  void report_access(int64_t number, bool is_write) noexcept override;

  // From the start of a run or capture until __exit__ returns. The turn is released first.
  nb::object driver_;
  nb::object run_;  // a RunObject
  Turn turn_;
  bool is_interrupted_ = false;
  nb::object records_, error_;
  std::atomic<int64_t> foreign_access_{kNone};
  std::unique_ptr<ProtectedPages> pages_;  // exists after watch_accesses()
};

void bind_run_scope(nb::module_& module);

}  // namespace pto::worker
