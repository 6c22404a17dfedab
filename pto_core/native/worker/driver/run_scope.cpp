#include "driver/run_scope.hpp"

#include <exception>
#include <utility>

#include "bindings.hpp"
#include "driver/task_handle.hpp"

namespace pto::worker {

bool RunScope::take_turn(nb::object driver, uint64_t thread, bool waits) {
  WorkerDriver& worker = *nb::inst_ptr<WorkerDriver>(driver);
  if (!worker.take_turn(thread, "a run or session", waits, &is_interrupted_)) return false;
  turn_ = Turn(worker.turns());
  driver_ = std::move(driver);
  return true;
}

template <class Begin>
void RunScope::own(const nb::object& driver, const char* what, Begin begin) {
  WorkerDriver& worker = *nb::inst_ptr<WorkerDriver>(driver);
  Turn turn = std::move(turn_);
  if (!turn) {
    worker.take_turn(PyThread_get_thread_ident(), what, true, &is_interrupted_);
    turn = Turn(worker.turns());
  }
  run_ = begin(worker);
  driver_ = driver;
  turn_ = std::move(turn);
}

nb::object RunScope::begin(nb::object driver, Hazards hazards, nb::handle config) {
  own(driver, "a run or session",
      [&](WorkerDriver& worker) { return worker.run_begin(driver, hazards, config); });
  return make_orchestrator(run_);
}

nb::object RunScope::begin_capture(nb::object driver, Hazards hazards, nb::handle config,
                                   TaskArgs* args) {
  own(driver, "a capture",
      [&](WorkerDriver& worker) { return worker.capture_begin(driver, hazards, config, args); });
  return make_orchestrator(run_);
}

void RunScope::begin_replay(nb::object driver, const CapturedObject& captured, TaskArgs* args) {
  own(driver, "a replay",
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

RunScope::~RunScope() {
  if (!is_open()) return;
  run()->outcomes ? driver().abandon() : driver().captures().abandon();
}

void RunScope::end() {
  if (turn_ && run_.is_valid()) driver().forget_run();
  turn_.end();
  run_.reset();
  driver_.reset();
  is_interrupted_ = false;
}

void RunScope::exit(nb::handle self, nb::handle error) {
  RunScope& scope = *nb::inst_ptr<RunScope>(self);
  if (!scope.run_.is_valid()) return scope.end();
  std::exception_ptr raised;
  if (scope.run()->outcomes) {
    try {
      self.attr("_leave")(error);
    } catch (nb::python_error&) {
      raised = std::current_exception();
    }
    if (scope.is_open()) scope.driver().end_abandoned();
  } else if (scope.is_open()) {
    scope.driver().captures().abandon();
  }
  scope.end();
  if (raised) std::rethrow_exception(raised);
}

void bind_run_scope(nb::module_& module) {
  nb::class_<RunScope>(module, "RunScope",
                       "The owner of an open run or capture. A derived class must define "
                       "`_leave(error)`. Each begin waits until no other thread has a run or "
                       "capture open.")
      .def(nb::init<>())
      .def("take_turn", &RunScope::take_turn, nb::arg("driver"), nb::arg("thread"),
           nb::arg("waits"),
           nb::sig("def take_turn(self, driver: Driver, thread: int, waits: bool) -> bool"),
           "Take the turn to begin a run, for the thread with this identifier. Return False "
           "instead of waiting unless `waits`. `__exit__` releases it.")
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
