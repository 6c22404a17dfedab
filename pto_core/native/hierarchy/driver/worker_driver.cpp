#include "driver/worker_driver.hpp"

#include <unistd.h>

#include <utility>

#include "arguments/visible_memory.hpp"
#include "driver/deciding.hpp"
#include "driver/task_handle.hpp"
#include "errors.hpp"
#include "gil.hpp"

namespace pto::hierarchy {

void raise_deadlock(const Deadlock& proof) {
  const nb::object type = nb::module_::import_("pto_core.hierarchy.deadlock").attr("Deadlock");
  core::raise_exception(
      type(proof.ring, proof.requested, proof.held, proof.size, proof.oldest_task, proof.open_scope)
          .attr("error")());
}

WorkerDriver::WorkerDriver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
                           nb::object hooks, const WorkerSettings& settings)
    : host_(std::make_unique<PythonHost>(std::move(hooks))),
      driver_(std::make_unique<Driver>(configuration, std::move(engine), *host_)),
      settings_(settings),
      process_(getpid()),
      child_memory_(settings.next_level_space == CallableSpace::kLocalChip),
      child_places_(driver_->configuration().engine.children),
      captures_(driver_->configuration().engine, settings_, child_memory_, child_places_),
      turns_(*host_),
      submits_(*this, *driver_, settings_, child_memory_, child_places_, captures_) {}

// In a forked child, leak the driver: its threads do not exist there, and it must not access memory
// that the parent uses.
WorkerDriver::~WorkerDriver() {
  if (process_ != getpid())
    static_cast<void>(driver_.release());
  else
    close_driver();
  forget_run();
  if (driver_ && driver_->own_thread().is_own_thread()) leave_to_own_thread();
}

// Repeat close() until it succeeds. The handler of an earlier signal may raise inside it; this runs
// in a destructor, which cannot raise, so the exception is reported and dropped.
void WorkerDriver::close_driver() noexcept {
  for (bool is_closed = false; !is_closed;) {
    try {
      driver_->close();
      is_closed = true;
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("closing the driver of a Worker");
    }
  }
}

// The driver's own thread dropped the last reference, inside a host call, and its stack still uses
// the driver and the host. So the thread deletes both when it ends.
void WorkerDriver::leave_to_own_thread() {
  Driver* const driver = driver_.release();
  driver->own_thread().end_by_itself([driver, host = host_.release()] {
    const PyGILState_STATE state = core::or_park([] { return PyGILState_Ensure(); });
    delete driver;
    delete host;
    PyGILState_Release(state);
  });
}

void WorkerDriver::stop(int64_t cause) {
  if (process_ != getpid()) return;
  driver_->stop(cause);
  turns_.wake_all();
}

void WorkerDriver::close() {
  if (process_ != getpid()) return;
  or_error([&] { driver_->close(); });
  forget_run();  // the run object holds a reference to this object, through driver_object
}

void WorkerDriver::refuse_inside() const {
  if (process_ == getpid()) or_error([&] { driver_->refuse_inside(); });
}

void WorkerDriver::refuse_fork() const {
  core::raise_usage("this Worker belongs to process " + std::to_string(process_) +
                    ", which forked this one; create a Worker in this process");
}

bool WorkerDriver::take_turn(uint64_t thread, const char* what, bool waits,
                             const bool* is_interrupted) {
  constexpr uint64_t kLate_ns = 10'000'000'000;
  if (turns_.has(thread)) {
    core::raise_usage(std::string(what) + " was started inside " +
                      (captures_.capture() ? "a capture" : "a run") +
                      " of the same Worker and thread, which would wait for itself; submit the "
                      "tasks in the outer function or block, or start it afterwards");
  }
  if (turns_.try_take(thread)) return true;
  if (!waits) return false;
  or_error([&] {
    Deciding::refuse();
    driver().refuse_inside();
  });
  bool is_late = false;
  turns_.take(thread, [&](uint64_t waited_ns) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    or_error([&] { driver().check_open(); });
    if (*is_interrupted)
      core::raise_usage(std::string("the wait to begin ") + what + " was cancelled");
    if (!is_late && waited_ns > kLate_ns) hooks().attr("turn_is_late")(turns_.owner());
    is_late = waited_ns > kLate_ns;
  });
  return true;
}

nb::object WorkerDriver::make_run(const nb::object& self, std::shared_ptr<RunOutcomes> outcomes,
                                  uint32_t config) {
  RunObject* run = make_run_object(this, self.ptr(), std::move(outcomes), config);
  if (!run) throw nb::python_error();
  run_ = run;
  return nb::borrow(reinterpret_cast<PyObject*>(run));
}

nb::object WorkerDriver::run_begin(nb::object self, Hazards hazards, nb::handle config) {
  end_run_without_owner();
  // Convert the configuration first, because it may be refused.
  const uint32_t number = submits_.config_number(config);
  auto outcomes = or_error([&] { return driver().run_begin(hazards); });
  is_abandoned_ = true;  // until the run has an owner
  settings_.memory->begin_run();
  if (settings_.attached) settings_.attached->begin_run();
  nb::object run = make_run(self, std::move(outcomes), number);
  is_abandoned_ = false;
  return run;
}

void WorkerDriver::run_end(bool is_interrupted) {
  or_error([&] { driver().run_end(is_interrupted); });
}

void WorkerDriver::forget_run() {
  captures_.end_replay();
  submits_.drop_kept(INT64_MAX);
  Py_CLEAR(run_);
}

bool WorkerDriver::is_open(const RunObject& run) const {
  return process_ == current_process() && run_ == &run &&
         (run.outcomes ? driver_->flags().is_running.load() : captures_.capture() != nullptr);
}

void WorkerDriver::end_run_without_owner() {
  if (std::exchange(is_abandoned_, false) && driver().flags().is_running) end_abandoned();
  forget_run();
}

// Called while a Python object is destroyed. Python code must not run here, because its exceptions
// would be dropped.
void WorkerDriver::abandon() noexcept {
  is_abandoned_ = true;
  if (driver_->flags().calls_python) return;
  try {
    driver_->cancel(driver_->add_cause({}));
  } catch (const Refusal&) {
    // This thread is inside a call of the driver. The next run_begin() will cancel this run.
  }
}

// Try several times to end the run, because an exception of a signal handler aborts one attempt.
void WorkerDriver::end_abandoned() noexcept {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts && driver_->flags().is_running; ++attempt) {
    try {
      driver_->cancel(driver_->add_cause({}));
      run_end(true);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("ending a run that was interrupted");
    } catch (const Refusal&) {
    }
  }
}

nb::object WorkerDriver::capture_begin(nb::object self, Hazards hazards, nb::handle config,
                                       TaskArgs* args) {
  end_run_without_owner();
  const uint32_t number = submits_.config_number(config);
  std::unique_ptr<Capture> made = captures_.make(hazards, args);
  nb::object run = make_run(self, nullptr, number);
  captures_.begin(std::move(made));
  return run;
}

nb::object WorkerDriver::replay_begin(nb::object self, const CapturedObject& captured,
                                      TaskArgs* args) {
  settings_.memory->begin_run();
  if (settings_.attached) settings_.attached->begin_run();
  captures_.check_replay(captured, args);
  nb::object run = run_begin(std::move(self), captured.graph->hazards, nb::none());
  captures_.begin_replay(captured, args, run_->outcomes->first_task, driver_->flags().oldest_live);
  return run;
}

void WorkerDriver::replay() {
  if (!captures_.replayed()) core::raise_usage("no replay has begun");
  const auto forget = [this](void*) { captures_.end_replay(); };
  const std::unique_ptr<void, decltype(forget)> until_over(this, forget);
  or_error([&] { driver().replay(captures_.replayed(), captures_.lies_apart()); });
}

}  // namespace pto::hierarchy
