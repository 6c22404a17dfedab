// CapturedGraph, and the methods of Driver that capture and replay a graph.

#include <nanobind/nanobind.h>

#include "bindings.hpp"
#include "driver/captures.hpp"
#include "driver/worker_driver.hpp"
#include "errors.hpp"

namespace pto::worker {
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
      .def_prop_ro(
          "edges",
          [](const CapturedObject& self) {
            nb::list edges;
            for (const auto& [first, second] : captured_edges(*self.graph))
              edges.append(nb::make_tuple(first, second));
            return edges;
          },
          nb::for_getter(nb::sig("def edges(self) -> list[tuple[int, int]]")),
          "The edges as pairs of tasks, which are numbered in the order of submits.")
      .def("__repr__", [](const CapturedObject& self) {
        return nb::str("<CapturedGraph of {} tasks, {} tensors>")
            .format(self.graph->tasks.size(), self.graph->arguments.size());
      });
  driver
      .def_prop_ro(
          "is_capturing",
          [](WorkerDriver& self) {
            return self.captures().capture() != nullptr &&
                   self.turns().owner() == PyThread_get_thread_ident();
          },
          "Whether this thread has begun a capture that is open.")
      .def(
          "captured_log",
          [](WorkerDriver& self, const CapturedObject& captured) {
            return captured_log(captured, self.driver().ask()->core.catalogue,
                                self.submits().places());
          },
          nb::arg("captured"),
          nb::sig("def captured_log(self, captured: CapturedGraph) -> dict[str, Any]"),
          "Return the fields of the access log of a captured graph.")
      .def("replay", &WorkerDriver::replay,
           "Submit all tasks of the graph that RunScope.begin_replay() received. The caller must "
           "call run_end() afterwards, even if this raises.");
}

}  // namespace pto::worker
