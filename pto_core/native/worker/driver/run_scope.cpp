#include "driver/run_scope.hpp"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <tuple>
#include <utility>

#include "bindings.hpp"
#include "driver/task_handle.hpp"
#include "gil.hpp"

namespace pto::worker {

bool RunScope::take_turn(nb::object driver, Hazards hazards, uint64_t thread, bool waits) {
  WorkerDriver& worker = *nb::inst_ptr<WorkerDriver>(driver);
  if (!worker.take_turn(thread, hazards, "a run or session", waits, &is_interrupted_)) return false;
  turn_ = Turn(worker.turns(), thread);
  driver_ = std::move(driver);
  return true;
}

template <class Begin>
void RunScope::own(const nb::object& driver, TurnUse use, const char* what, Begin begin) {
  WorkerDriver& worker = *nb::inst_ptr<WorkerDriver>(driver);
  Turn turn = std::move(turn_);
  if (!turn) {
    const uint64_t thread = PyThread_get_thread_ident();
    worker.take_turn(thread, use, what, true, &is_interrupted_);
    turn = Turn(worker.turns(), thread);
  }
  run_ = begin(worker);
  driver_ = driver;
  turn_ = std::move(turn);
}

nb::object RunScope::begin(nb::object driver, Hazards hazards, nb::handle config) {
  own(driver, hazards, "a run or session",
      [&](WorkerDriver& worker) { return worker.run_begin(driver, hazards, config); });
  return make_orchestrator(run_);
}

nb::object RunScope::begin_capture(nb::object driver, Hazards hazards, nb::handle config,
                                   TaskArgs* args) {
  own(driver, std::nullopt, "a capture",
      [&](WorkerDriver& worker) { return worker.capture_begin(driver, hazards, config, args); });
  return make_orchestrator(run_);
}

void RunScope::begin_replay(nb::object driver, const CapturedObject& captured, TaskArgs* args) {
  own(driver, std::nullopt, "a replay",
      [&](WorkerDriver& worker) { return worker.replay_begin(driver, captured, args); });
}

CapturedObject RunScope::end_capture() {
  return driver().captures().end();
}

void RunScope::interrupt() {
  is_interrupted_ = true;
  if (!is_open() || !run()->outcomes) return;
  const Role role = driver().driver().ask();
  run()->outcomes->is_interrupted = true;
  role->exchange.wake_waiting();
}

std::shared_ptr<RunOutcomes> RunScope::outcomes() const {
  return run_.is_valid() ? run()->outcomes : nullptr;
}

void RunScope::watch_accesses(AddressSpan mapping, nb::list records, nb::type_object error) {
  records_ = std::move(records);
  error_ = std::move(error);
  pages_ = std::make_unique<ProtectedPages>(*this, mapping.begin, mapping.end);
}

void RunScope::protect(std::vector<UsedRange> used) {
  if (pages_) pages_->set(std::move(used));
}

// The interpreter raises the exception in eval(). CPython 3.11 keeps a flag if the exception is
// withdrawn by PyThreadState_SetAsyncExc(thread, NULL), and then the next call never returns while
// a profile function is set.
nb::object RunScope::withdraw_error() {
  if (!pages_ || nb::len(records_) == 0) return nb::none();
  const nb::object kept = records_.attr("copy")();
  try {
    nb::module_::import_("builtins").attr("eval")("None");
  } catch (nb::python_error& raised) {
    if (nb::len(records_) == nb::len(kept)) return nb::borrow(raised.value());
    records_.attr("clear")();  // the exception has taken its records
    records_.attr("extend")(kept);
  }
  return nb::none();
}

namespace {

// Return a new list with the file and line of each frame of this thread, the innermost first; null,
// with the exception set, on an error.
PyObject* frames_of_thread() {
  PyObject* made = PyList_New(0);
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(reinterpret_cast<PyObject*>(frame));
  while (frame && made) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    PyObject* place = Py_BuildValue("(Oi)", code->co_filename, PyFrame_GetLineNumber(frame));
    Py_DECREF(reinterpret_cast<PyObject*>(code));
    if (!place || PyList_Append(made, place) < 0) Py_CLEAR(made);
    Py_XDECREF(place);
    PyFrameObject* const outer = PyFrame_GetBack(frame);
    Py_DECREF(reinterpret_cast<PyObject*>(frame));
    frame = outer;
  }
  Py_XDECREF(reinterpret_cast<PyObject*>(frame));
  return made;
}

}  // namespace

// The interrupted code accesses an array, so it does not hold the locks that this needs. If it has
// released the GIL, this waits for the GIL.
void RunScope::report_access(int64_t number, bool is_write) noexcept {
  if (!PyGILState_GetThisThreadState() || core::is_finalizing()) {
    foreign_access_ = number;
    return;
  }
  const PyGILState_STATE held = PyGILState_Ensure();
  {
    const nb::error_scope of_interrupted_code;
    const unsigned long thread = PyThread_get_thread_ident();
    const nb::object frames = nb::steal(frames_of_thread());
    const nb::object record = nb::steal(
        Py_BuildValue("(LOOk)", static_cast<long long>(number), is_write ? Py_True : Py_False,
                      frames.ptr() ? frames.ptr() : Py_None, thread));
    if (!record.is_valid() || PyList_Append(records_.ptr(), record.ptr()) < 0)
      foreign_access_ = number;
    PyThreadState_SetAsyncExc(thread, error_.ptr());
    PyErr_Clear();
  }
  PyGILState_Release(held);
}

RunScope::~RunScope() {
  if (!is_open()) return;
  run()->outcomes ? driver().abandon(outcomes()) : driver().captures().abandon();
}

void RunScope::end() {
  if (turn_ && run_.is_valid()) driver().forget_run();
  turn_.end();
  pages_.reset();
  records_.reset();
  error_.reset();
  run_.reset();
  driver_.reset();
  is_interrupted_ = false;
}

void RunScope::exit(nb::handle self, nb::handle error) {
  RunScope& scope = *nb::inst_ptr<RunScope>(self);
  if (!scope.run_.is_valid()) return scope.end();
  const nb::object other = scope.withdraw_error();
  std::exception_ptr raised;
  if (scope.run()->outcomes) {
    try {
      self.attr("_leave")(other.is_none() ? error : nb::handle(other));
    } catch (nb::python_error&) {
      raised = std::current_exception();
    }
    if (scope.is_open()) scope.driver().end_abandoned(scope.outcomes());
  } else if (scope.is_open()) {
    scope.driver().captures().abandon();
  }
  scope.end();
  if (raised) std::rethrow_exception(raised);
  if (!other.is_none()) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(other.ptr())), other.ptr());
    throw nb::python_error();
  }
}

namespace {

void bind_accesses(nb::class_<RunScope>& bound) {
  bound
      .def(
          "watch_accesses",
          [](RunScope& self, uint64_t begin, uint64_t end, nb::list records,
             nb::type_object error) {
            self.watch_accesses({begin, end}, std::move(records), std::move(error));
          },
          nb::arg("begin"), nb::arg("end"), nb::arg("records"), nb::arg("error"),
          nb::sig("def watch_accesses(self, begin: int, end: int, records: list[tuple[int, bool, "
                  "list[tuple[str, int]], int]], error: type[BaseException]) -> None"),
          "Until the end of the run, report accesses of the program to ranges of the mapping; see "
          "protect(). A report is an entry in `records`: number, whether it is a write, file and "
          "line of each frame, thread. The thread gets an exception of class `error` soon.")
      .def(
          "protect",
          [](RunScope& self,
             const std::vector<std::tuple<uint64_t, uint64_t, bool, int64_t>>& all) {
            std::vector<UsedRange> used;
            for (const auto& [begin, end, is_written, number] : all)
              used.push_back({begin, end, is_written, number});
            self.protect(std::move(used));
          },
          nb::arg("used"),
          "Set the ranges of addresses that tasks use: (begin, end, whether a read is reported "
          "too, number for the report).")
      .def_prop_ro("foreign_access", &RunScope::foreign_access,
                   "The number of a range that a thread without Python code has accessed, or -1.")
      .def(
          "__aexit__",
          [](nb::handle_t<RunScope> self, nb::args raised) {
            const nb::object other = nb::inst_ptr<RunScope>(self)->withdraw_error();
            if (!other.is_none()) nb::inst_ptr<RunScope>(self)->interrupt();
            const nb::object exit = self.attr("__exit__");
            const nb::object leave =
                nb::module_::import_("functools").attr("partial")(exit, *raised);
            return nb::module_::import_("pto_core.worker.event_loops")
                .attr("in_thread")(leave, self.attr("interrupt"));
          },
          nb::sig("def __aexit__(self, *raised: object) -> "
                  "collections.abc.Coroutine[typing.Any, typing.Any, None]"),
          "Return a coroutine that calls `__exit__` in a thread. If it is cancelled, it interrupts "
          "the run.");
}

}  // namespace

void bind_run_scope(nb::module_& module) {
  nb::class_<RunScope> bound(module, "RunScope",
                             "The owner of an open run or capture. A derived class must define "
                             "`_leave(error)`. Runs with the same hazards can be open at once; a "
                             "capture or a replay waits until no run is open, and runs wait for "
                             "its end.");
  bind_accesses(bound);
  bound.def(nb::init<>())
      .def(
          "take_turn",
          [](RunScope& self, nb::object driver, int hazards, uint64_t thread, bool waits) {
            return self.take_turn(std::move(driver), static_cast<Hazards>(hazards), thread, waits);
          },
          nb::arg("driver"), nb::arg("hazards"), nb::arg("thread"), nb::arg("waits"),
          nb::sig("def take_turn(self, driver: Driver, hazards: int, thread: int, waits: bool) -> "
                  "bool"),
          "Take the turn to begin a run, for the thread with this identifier. Return False "
          "instead of waiting unless `waits`. `__exit__` releases it.")
      .def_rw("number", &RunScope::number, "The number of the run in the Worker, for observers.")
      .def(
          "begin",
          [](RunScope& self, nb::object driver, int hazards, nb::handle config) {
            return self.begin(std::move(driver), static_cast<Hazards>(hazards), config);
          },
          nb::arg("driver"), nb::arg("hazards"), nb::arg("config").none(),
          nb::sig("def begin(self, driver: Driver, hazards: int, config: object | None) -> "
                  "Orchestrator"),
          "Begin a run. `config`: a CallConfig for tasks without one, or None.")
      .def(
          "begin_capture",
          [](RunScope& self, nb::object driver, int hazards, nb::handle config, nb::handle args) {
            return self.begin_capture(std::move(driver), static_cast<Hazards>(hazards), config,
                                      given_args(args));
          },
          nb::arg("driver"), nb::arg("hazards"), nb::arg("config").none(), nb::arg("args").none(),
          nb::sig("def begin_capture(self, driver: Driver, hazards: int, config: object | None, "
                  "args: TaskArgs | None) -> Orchestrator"),
          "Begin a capture: submits are recorded and not executed. `__exit__` drops it.")
      .def("end_capture", &RunScope::end_capture, "End the capture and return the recorded graph.")
      .def(
          "begin_replay",
          [](RunScope& self, nb::object driver, const CapturedObject& graph, nb::handle args) {
            self.begin_replay(std::move(driver), graph, given_args(args));
          },
          nb::arg("driver"), nb::arg("graph"), nb::arg("args").none(),
          nb::sig("def begin_replay(self, driver: Driver, graph: CapturedGraph, args: TaskArgs | "
                  "None) -> None"),
          "Begin a run that replays a captured graph on the tensors of `args`.")
      .def("interrupt", &RunScope::interrupt,
           "Cancel the run as Ctrl-C does: running tasks have a short time to end.")
      .def(
          "__exit__",
          [](nb::handle_t<RunScope> self, nb::handle, nb::handle error, nb::handle) {
            RunScope::exit(self, error);
          },
          nb::arg("kind").none(), nb::arg("error").none(), nb::arg("trace").none(),
          nb::sig("def __exit__(self, kind: type[BaseException] | None, error: BaseException | "
                  "None, trace: types.TracebackType | None) -> None"),
          "Call `_leave(error)`, which ends the run. The run is over when this returns or raises.");
}

}  // namespace pto::worker
