#include "driver/worker_driver.hpp"

#include <unistd.h>

#include <utility>

#include "arguments/visible_memory.hpp"
#include "driver/task_handle.hpp"
#include "errors.hpp"
#include "gil.hpp"

namespace pto::hierarchy {

void raise_deadlock(const Deadlock& proof) {
  const nb::object type = nb::module_::import_("pto_core.hierarchy.engine").attr("Deadlock");
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
      submits_(*this, *driver_, settings_, child_memory_, child_places_, captures_, run_) {}

// In a forked child, leak the driver: its threads do not exist there, and it must not access memory
// that the parent uses.
WorkerDriver::~WorkerDriver() {
  if (process_ != getpid())
    static_cast<void>(driver_.release());
  else
    close_driver();
  submits_.drop_kept(INT64_MAX);
  set_run(nullptr, 0);
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
  if (process_ == getpid()) driver_->stop(cause);
}

void WorkerDriver::close() {
  if (process_ != getpid()) return;
  or_error([&] { driver_->close(); });
  submits_.drop_kept(INT64_MAX);
  // The run object holds a reference to this object, through driver_object.
  set_run(nullptr, 0);
}

void WorkerDriver::refuse_inside() const {
  if (process_ == getpid()) or_error([&] { driver_->refuse_inside(); });
}

void WorkerDriver::refuse_fork() const {
  core::raise_usage("this Worker belongs to process " + std::to_string(process_) +
                    ", which forked this one; create a Worker in this process");
}

void WorkerDriver::run_begin(nb::object self, Hazards hazards, nb::handle config) {
  end_run_without_owner();
  // Convert the configuration first, because it may be refused.
  const uint32_t number = submits_.config_number(config);
  captures_.check_none();
  auto outcomes = or_error([&] { return driver().run_begin(hazards); });
  // another thread began a capture while this thread waited for the driver
  if (captures_.capture()) {
    or_error([&] { driver().run_end(false); });
    captures_.check_none();
  }
  settings_.memory->begin_run();
  if (settings_.attached) settings_.attached->begin_run();
  RunObject* run = make_run_object(this, self.ptr(), std::move(outcomes));
  if (!run) {
    is_abandoned_ = true;
    throw nb::python_error();
  }
  set_run(run, number);
  captures_.end_replay();
}

void WorkerDriver::run_end(bool is_interrupted) {
  or_error([&] { driver().run_end(is_interrupted); });
  captures_.end_replay();
  submits_.drop_kept(INT64_MAX);
  set_run(nullptr, 0);
}

const std::shared_ptr<RunOutcomes>& WorkerDriver::outcomes() const {
  return run_.object->outcomes;
}

bool WorkerDriver::is_open(const RunOutcomes& outcomes) const {
  return process_ == current_process() && driver_->flags().is_running && run_.object &&
         run_.object->outcomes.get() == &outcomes;
}

void WorkerDriver::end_run_without_owner() {
  if (std::exchange(is_abandoned_, false) && driver().flags().is_running) end_abandoned();
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

void WorkerDriver::set_run(RunObject* run, uint32_t config) {
  Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(run_.object, run)));
  run_.config = config;
}

void WorkerDriver::capture_begin(nb::object self, Hazards hazards, nb::handle config,
                                 TaskArgs* args) {
  end_run_without_owner();
  const uint32_t number = submits_.config_number(config);
  std::unique_ptr<Capture> made = captures_.make(hazards, args);
  // Other threads can run before this line, but not between here and the end of the function.
  if (captures_.capture())
    core::raise_usage("a capture was started inside a capture; capture one graph after the other");
  if (driver_->flags().is_running)
    core::raise_usage("a capture was started inside a run; capture before or after the run");
  RunObject* run = make_run_object(this, self.ptr(), nullptr);
  if (!run) throw nb::python_error();
  set_run(run, number);
  captures_.begin(std::move(made));
}

CapturedObject WorkerDriver::capture_end() {
  CapturedObject found = captures_.end();
  set_run(nullptr, 0);
  return found;
}

void WorkerDriver::capture_abandon() {
  captures_.abandon();
  set_run(nullptr, 0);
}

void WorkerDriver::replay_begin(nb::object self, const CapturedObject& captured, TaskArgs* args) {
  settings_.memory->begin_run();
  if (settings_.attached) settings_.attached->begin_run();
  captures_.check_replay(captured, args);
  run_begin(std::move(self), captured.graph->hazards, nb::none());
  captures_.begin_replay(captured, args, outcomes()->first_task, driver_->flags().oldest_live);
}

void WorkerDriver::replay() {
  if (!captures_.replayed()) core::raise_usage("no replay has begun");
  const auto forget = [this](void*) { captures_.end_replay(); };
  const std::unique_ptr<void, decltype(forget)> until_over(this, forget);
  or_error([&] { driver().replay(captures_.replayed(), captures_.lies_apart()); });
}

}  // namespace pto::hierarchy
