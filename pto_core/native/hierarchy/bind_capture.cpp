// CapturedGraph, and the methods of Driver that capture and replay a graph.

#include <nanobind/nanobind.h>

#include "bindings.hpp"
#include "driver/worker_driver.hpp"
#include "errors.hpp"

namespace pto::hierarchy {
void bind_capture(nb::module_& module, nb::class_<WorkerDriver>& driver) {
  nb::class_<CapturedObject>(module, "CapturedGraph",
                             "The recorded submits of a graph. Worker.capture creates it, "
                             "Worker.replay uses it.")
      .def_prop_ro(
          "task_count", [](const CapturedObject& self) { return self.graph->tasks.size(); },
          "The number of tasks that a replay submits.")
      .def_prop_ro(
          "tensor_count", [](const CapturedObject& self) { return self.graph->arguments.size(); },
          "The number of tensors in the arguments of the graph.")
      .def("__repr__", [](const CapturedObject& self) {
        return nb::str("<CapturedGraph of {} tasks, {} tensors>")
            .format(self.graph->tasks.size(), self.graph->arguments.size());
      });
  driver
      .def(
          "capture_begin",
          [](nb::handle_t<WorkerDriver> self, int hazards, nb::handle config, nb::handle args) {
            nb::inst_ptr<WorkerDriver>(self)->capture_begin(
                nb::borrow(self), static_cast<Hazards>(hazards), config, given_args(args));
          },
          nb::arg("hazards"), nb::arg("config").none(), nb::arg("args").none(),
          nb::sig("def capture_begin(self, hazards: int, config: object | None, args: TaskArgs | "
                  "None) -> None"),
          "Start a capture: submits are recorded and not executed.")
      .def("capture_end", &WorkerDriver::capture_end,
           "End the capture and return the recorded "
           "graph.")
      .def("capture_abandon", &WorkerDriver::capture_abandon,
           "End the capture and drop the recorded "
           "submits.")
      .def_prop_ro(
          "is_capturing", [](WorkerDriver& self) { return self.captures().capture() != nullptr; },
          "Whether a capture is open.")
      .def("replay", &WorkerDriver::replay,
           "Submit all tasks of the graph that RunScope.begin_replay() received. The caller must "
           "call run_end() afterwards, even if this raises.");
}

}  // namespace pto::hierarchy
