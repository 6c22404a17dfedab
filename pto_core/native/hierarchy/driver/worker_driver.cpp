#include "driver/worker_driver.hpp"

#include <nanobind/stl/string.h>
#include <unistd.h>

#include "driver/capture.hpp"
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
      own_folder_(nb::cast<std::string>(nb::module_::import_("os.path").attr("dirname")(
                      nb::module_::import_("pto_core").attr("__file__"))) +
                  "/") {
  int32_t number = 0;
  for (const ChildConfiguration& child : configuration.engine.children)
    children_[static_cast<size_t>(child.kind)].push_back(number++);
}

// A child that inherited it has no thread of it, and must not touch what the parent uses.
WorkerDriver::~WorkerDriver() {
  if (process_ != getpid())
    static_cast<void>(driver_.release());
  else
    close_driver();
  drop_kept(INT64_MAX);
  Py_XDECREF(reinterpret_cast<PyObject*>(run_));
  if (driver_ && driver_->own_thread().is_own_thread()) leave_to_own_thread();
}

// Destruction cannot raise: what the handler of an earlier signal raises is reported and dropped.
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

// The last reference was dropped by the driver's own thread, in a call of the host: the frames
// below still use both.
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
  drop_kept(INT64_MAX);
  // It holds this object through driver_object.
  Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(run_, nullptr)));
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
  // First, because it may be refused.
  const uint32_t number = config.is_none() ? 0 : config_number(config.ptr());
  check_no_capture();
  auto outcomes = or_error([&] { return driver().run_begin(hazards); });
  if (capture_) {  // another thread began it while this one waited for the driver
    or_error([&] { driver().run_end(false); });
    check_no_capture();
  }
  settings_.memory->begin_run();
  RunObject* run = make_run_object(this, self.ptr(), std::move(outcomes));
  if (!run) {
    is_abandoned_ = true;
    throw nb::python_error();
  }
  Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(run_, run)));
  run_config_ = number;
  replayed_.reset();
}

void WorkerDriver::check_no_capture() const {
  if (!capture_) return;
  core::raise_usage(
      "a run or session inside a capture, of which nothing runs; submit its tasks "
      "in the function that is captured");
}

void WorkerDriver::run_end(bool is_interrupted) {
  or_error([&] { driver().run_end(is_interrupted); });
  replayed_.reset();
  drop_kept(INT64_MAX);
  Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(run_, nullptr)));
}

const std::shared_ptr<RunOutcomes>& WorkerDriver::outcomes() const {
  return run_->outcomes;
}

bool WorkerDriver::is_open(const RunOutcomes& outcomes) const {
  return process_ == current_process() && driver_->flags().is_running && run_ &&
         run_->outcomes.get() == &outcomes;
}

void WorkerDriver::end_run_without_owner() {
  if (std::exchange(is_abandoned_, false) && driver().flags().is_running) end_abandoned();
}

// An object goes: no Python may run here, where what it raises would be dropped.
void WorkerDriver::abandon() noexcept {
  is_abandoned_ = true;
  if (driver_->flags().calls_python) return;
  try {
    driver_->cancel(driver_->add_cause({}));
  } catch (const Refusal&) {
    // Inside a call of the driver: the next run cancels it.
  }
}

// What a handler raises ends one attempt, and a run needs few.
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

nb::tuple WorkerDriver::outcome() const {
  nb::list failed, poisoned;
  for (const auto& [task, cause] : driver_->ask()->core.engine->failures())
    failed.append(nb::make_tuple(task, cause));
  for (const auto& [task, root] : driver_->ask()->core.engine->poisonings())
    poisoned.append(nb::make_tuple(task, root));
  return nb::make_tuple(driver_->outcomes()->is_over.load(), failed, poisoned);
}

void WorkerDriver::drop_kept(int64_t before) {
  while (!kept_.empty() && kept_.front().task < before) {
    PyObject* owner = kept_.front().owner;
    kept_.pop_front();
    Py_DECREF(owner);
  }
}

nb::object WorkerDriver::place_of(const Place& place) const {
  if (place.code == 0) return nb::make_tuple(nb::none(), nb::none());
  const nb::object& code = codes_[place.code];
  auto* raw = reinterpret_cast<PyCodeObject*>(code.ptr());
  return nb::make_tuple(code.attr("co_filename"), PyCode_Addr2Line(raw, place.instruction));
}

// The innermost frame that is not of this package.
Place WorkerDriver::place_of_caller() {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(reinterpret_cast<PyObject*>(frame));
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const uint32_t number = code_number(reinterpret_cast<PyObject*>(code));
    Py_DECREF(reinterpret_cast<PyObject*>(code));
    PyFrameObject* const inner = frame;
    const Place place{number, PyFrame_GetLasti(frame)};
    if (number == 0) frame = PyFrame_GetBack(inner);
    Py_DECREF(reinterpret_cast<PyObject*>(inner));
    if (number != 0) return place;
  }
  return {};
}

uint32_t WorkerDriver::code_number(PyObject* code) {
  if (code == last_code_) return last_code_number_;
  const auto [found, is_new] = code_numbers_.try_emplace(code, 0);
  if (is_new) {
    const auto file = nb::cast<std::string>(nb::handle(code).attr("co_filename"));
    if (file.starts_with(own_folder_)) {
      own_codes_.push_back(nb::borrow(code));
    } else {
      found->second = static_cast<uint32_t>(codes_.size());
      codes_.push_back(nb::borrow(code));
    }
  }
  last_code_ = code;
  last_code_number_ = found->second;
  return found->second;
}

}  // namespace pto::hierarchy
