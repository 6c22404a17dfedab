#include "driver/run_scope.hpp"

#include <exception>
#include <utility>

namespace pto::hierarchy {

void RunScope::begin(nb::object driver, Hazards hazards, nb::handle config) {
  nb::inst_ptr<WorkerDriver>(driver)->run_begin(driver, hazards, config);
  own(std::move(driver));
}

void RunScope::begin_replay(nb::object driver, const CapturedObject& captured, TaskArgs* args) {
  nb::inst_ptr<WorkerDriver>(driver)->replay_begin(driver, captured, args);
  own(std::move(driver));
}

void RunScope::own(nb::object driver) {
  driver_ = nb::inst_ptr<WorkerDriver>(driver);
  outcomes_ = driver_->outcomes();
  object_ = std::move(driver);
}

bool RunScope::is_open() const {
  return driver_ && driver_->is_open(*outcomes_);
}

RunScope::~RunScope() {
  if (is_open()) driver_->abandon();
}

void RunScope::exit(nb::handle self, nb::handle error) {
  RunScope& scope = *nb::inst_ptr<RunScope>(self);
  if (!scope.driver_) return;
  std::exception_ptr raised;
  try {
    self.attr("_leave")(error);
  } catch (nb::python_error&) {
    raised = std::current_exception();
  }
  if (scope.is_open()) scope.driver_->end_abandoned();
  scope.driver_ = nullptr;
  scope.outcomes_.reset();
  scope.object_.reset();
  if (raised) std::rethrow_exception(raised);
}

void bind_run_scope(nb::module_& module) {
  nb::class_<RunScope>(module, "RunScope",
                       "The owner of an open run. A derived class must define `_leave(error)`.")
      .def(nb::init<>())
      .def(
          "begin",
          [](RunScope& self, nb::object driver, int hazards, nb::handle config) {
            self.begin(std::move(driver), static_cast<Hazards>(hazards), config);
          },
          nb::arg("driver"), nb::arg("hazards"), nb::arg("config").none(),
          nb::sig("def begin(self, driver: Driver, hazards: int, config: object | None) -> None"),
          "Begin a run. `config`: a CallConfig for tasks without one, or None.")
      .def(
          "begin_replay",
          [](RunScope& self, nb::object driver, const CapturedObject& graph, nb::handle args) {
            self.begin_replay(std::move(driver), graph, given_args(args));
          },
          nb::arg("driver"), nb::arg("graph"), nb::arg("args").none(),
          nb::sig("def begin_replay(self, driver: Driver, graph: CapturedGraph, args: TaskArgs | "
                  "None) -> None"),
          "Begin a run that replays a captured graph on the tensors of `args`.")
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

}  // namespace pto::hierarchy
