#include "driver/worker_driver.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "arguments/visible_memory.hpp"
#include "driver/host.hpp"
#include "driver/task_handle.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "pto/engine/bell.hpp"
#include "text.hpp"

namespace pto::worker {
namespace {

// The Python thread state of a thread that has released the GIL.
thread_local PyThreadState* saved = nullptr;
// Whether the driver's own thread has a Python thread state: from its first take() until it ends.
// The thread keeps this state while it waits without the GIL, because the Python frames of a host
// call still need it.
thread_local bool is_entered = false;
thread_local PyGILState_STATE entered;

}  // namespace

void PythonHost::give_up() {
  saved = PyEval_SaveThread();
}

void PythonHost::take() {
  core::or_park([] {
    if (saved) {
      PyEval_RestoreThread(std::exchange(saved, nullptr));
    } else {
      entered = PyGILState_Ensure();
      is_entered = true;
    }
  });
}

// During interpreter shutdown a thread cannot acquire the GIL, and the interpreter frees the thread
// state itself.
void PythonHost::leave() {
  if (!is_entered || core::is_finalizing()) return;
  take();
  is_entered = false;
  PyGILState_Release(entered);
}

void PythonHost::attend(bool is_callers) {
  if (is_callers && PyErr_CheckSignals() != 0) {
    const nb::python_error error;
    hooks_.attr("note_interrupt")(error.value());
    throw error;
  }
  hooks_.attr("poll")();
}

void PythonHost::end_child(int32_t child, int64_t cause) {
  hooks_.attr("end_child")(child, cause);
}

void PythonHost::child_broken(int32_t child, const std::string& message) {
  hooks_.attr("child_broken")(child, message);
}

uint64_t PythonHost::grant(uint32_t ring, uint64_t bytes) {
  return nb::cast<uint64_t>(hooks_.attr("grant")(ring, bytes));
}

bool Turns::try_take(uint64_t thread, TurnUse use) {
  const bool is_shared = use && use == use_ && owners_.size() < kMaxRuns;
  if (!owners_.empty() && !is_shared) return false;
  use_ = use;
  owners_.push_back(thread);
  return true;
}

void Turns::take(uint64_t thread, TurnUse use,
                 const std::function<void(uint64_t waited_ns)>& check) {
  constexpr std::chrono::milliseconds kSlice(50);
  if (try_take(thread, use)) return;
  const uint64_t begin = engine::monotonic_ns();
  Waiting mine{thread, use};
  waiting_.push_back(&mine);
  try {
    while (!mine.has_turn) {
      host_.give_up();
      static_cast<void>(mine.woken.try_acquire_for(kSlice));
      host_.take();
      if (!mine.has_turn) check(engine::monotonic_ns() - begin);
    }
  } catch (...) {
    std::erase(waiting_, &mine);
    if (mine.has_turn) release(thread);  // received inside the check
    throw;
  }
}

// A forked process has a copy of the turn, and none of the threads.
void Turns::release(uint64_t thread) {
  if (process_ != current_process()) return;
  owners_.erase(std::find(owners_.begin(), owners_.end(), thread));
  std::erase_if(waiting_, [this](Waiting* each) {
    if (!try_take(each->thread, each->use)) return false;
    each->has_turn = true;
    each->woken.release();
    return true;
  });
}

void Turns::wake_all() {
  for (Waiting* each : waiting_) each->woken.release();
}

bool Turns::has(uint64_t thread) const {
  return std::find(owners_.begin(), owners_.end(), thread) != owners_.end() ||
         std::any_of(waiting_.begin(), waiting_.end(),
                     [thread](const Waiting* each) { return each->thread == thread; });
}

void raise_deadlock(const Deadlock& proof) {
  const nb::object type = nb::module_::import_("pto_core.worker.deadlock").attr("Deadlock");
  core::raise_exception(
      type(proof.ring, proof.requested, proof.held, proof.size, proof.oldest_task, proof.open_scope)
          .attr("error")());
}

WorkerDriver::WorkerDriver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
                           nb::object hooks, const SubmitSettings& settings)
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

bool WorkerDriver::take_turn(uint64_t thread, TurnUse use, const char* what, bool waits,
                             const bool* is_interrupted) {
  constexpr uint64_t kLate_ns = 10'000'000'000;
  if (turns_.try_take(thread, use)) return true;
  if (turns_.has(thread)) {
    const char* outer = captures_.capture() ? "a capture"
                        : use               ? "a run with other hazards"
                                            : "a run";
    core::raise_usage(std::string(what) + " was started inside " + outer +
                      " of the same Worker and thread, which would wait for itself; submit the "
                      "tasks in the outer function or block, or start it afterwards");
  }
  if (!waits) return false;
  or_error([&] {
    Deciding::refuse();
    driver().refuse_inside();
  });
  bool is_late = false;
  turns_.take(thread, use, [&](uint64_t waited_ns) {
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
  return nb::steal(reinterpret_cast<PyObject*>(run));
}

nb::object WorkerDriver::run_begin(nb::object self, Hazards hazards, nb::handle config) {
  end_runs_without_owner();
  // Convert the configuration first, because it may be refused.
  const uint32_t number = submits_.config_number(config);
  auto outcomes = or_error([&] { return driver().run_begin(hazards); });
  abandoned_.push_back(outcomes);  // until the run has an owner
  settings_.memory->begin_run();
  if (settings_.attached) settings_.attached->begin_run();
  nb::object run = make_run(self, outcomes, number);
  std::erase(abandoned_, outcomes);
  return run;
}

void WorkerDriver::forget_run() {
  captures_.end_replay();
  const bool is_any_open = driver_ && driver_->flags().open_runs > 0;
  submits_.drop_kept(is_any_open ? driver_->flags().oldest_live.load() : INT64_MAX);
  captured_.reset();
}

bool WorkerDriver::is_open(const RunObject& run) const {
  if (process_ != current_process()) return false;
  if (run.outcomes) return !run.outcomes->is_over;
  return captures_.capture() && captured_.ptr() == reinterpret_cast<const PyObject*>(&run);
}

void WorkerDriver::end_runs_without_owner() {
  for (const auto& run : std::exchange(abandoned_, {})) end_abandoned(run);
  forget_run();
}

// Called while a Python object is destroyed. Python code must not run here, because its exceptions
// would be dropped.
void WorkerDriver::abandon(std::shared_ptr<RunOutcomes> run) noexcept {
  abandoned_.push_back(run);
  if (driver_->flags().calls_python) return;
  try {
    driver_->cancel(driver_->add_cause({}), run.get());
  } catch (const Refusal&) {
    // This thread is inside a call of the driver. The next run_begin() will cancel this run.
  }
}

// Try several times to end the run, because an exception of a signal handler aborts one attempt.
void WorkerDriver::end_abandoned(const std::shared_ptr<RunOutcomes>& run) noexcept {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts && !run->is_over; ++attempt) {
    try {
      driver_->cancel(driver_->add_cause({}), run.get());
      or_error([&] { driver().run_end(true, run); });
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("ending a run that was interrupted");
    } catch (const Refusal&) {
    }
  }
}

nb::object WorkerDriver::capture_begin(nb::object self, Hazards hazards, nb::handle config,
                                       TaskArgs* args) {
  end_runs_without_owner();
  const uint32_t number = submits_.config_number(config);
  std::unique_ptr<Capture> made = captures_.make(hazards, args);
  captured_ = make_run(self, nullptr, number);
  captures_.begin(std::move(made));
  return captured_;
}

nb::object WorkerDriver::replay_begin(nb::object self, const CapturedObject& captured,
                                      TaskArgs* args) {
  settings_.memory->begin_run();
  if (settings_.attached) settings_.attached->begin_run();
  captures_.check_replay(captured, args);
  nb::object run = run_begin(std::move(self), captured.graph->hazards, nb::none());
  const auto& outcomes = reinterpret_cast<const RunObject*>(run.ptr())->outcomes;
  captures_.begin_replay(captured, args, outcomes->first_task, driver_->flags().oldest_live);
  return run;
}

void WorkerDriver::replay() {
  if (!captures_.replayed()) core::raise_usage("no replay has begun");
  const auto forget = [this](void*) { captures_.end_replay(); };
  const std::unique_ptr<void, decltype(forget)> until_over(this, forget);
  or_error([&] { driver().replay(captures_.replayed(), captures_.lies_apart()); });
}

}  // namespace pto::worker
