#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "device.hpp"
#include "errors.hpp"
#include "run.hpp"
#include "task_watch.hpp"
#include "text.hpp"

namespace pto::core {
namespace {

using Self = nb::handle_t<OpenDevice>;

OpenDevice& device(Self self) {
  return *nb::inst_ptr<OpenDevice>(self);
}

// For the garbage collector: a device refers to kernels and to the loader, whose global variables
// may refer to the device.
int traverse_device(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<OpenDevice>(self)->traverse(visit, arg) : 0;
}

int clear_device(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<OpenDevice>(self)->clear();
  return 0;
}

PyType_Slot device_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_device)},
                              {Py_tp_clear, reinterpret_cast<void*>(&clear_device)},
                              {0, nullptr}};

// Return the process that runs the variant on the device; None if the host process runs it.
nb::object process_of(const OpenDevice& device) {
  const pto_device_shape& shape = device.shape();
  if (shape.label == nullptr) return nb::none();
  return nb::make_tuple(shape.label, shape.process, shape.machine);
}

void bind_use(nb::class_<OpenDevice>& bound) {
  bound
      .def(
          "run",
          [](Self self, const Program& program, nb::tuple arguments, nb::bytes call_config,
             std::optional<double> timeout_s, std::optional<double> task_timeout_s,
             uint32_t hazards, bool measures, std::optional<nb::tuple> trace_settings,
             nb::list traces, uint64_t stream) {
            return device(self).run(self, program, std::move(arguments), std::move(call_config),
                                    timeout_s, task_timeout_s, hazards, measures,
                                    std::move(trace_settings), std::move(traces), stream);
          },
          nb::arg("program"), nb::arg("arguments"), nb::arg("call_config"),
          nb::arg("timeout_s").none(), nb::arg("task_timeout_s").none(), nb::arg("hazards"),
          nb::arg("measures"), nb::arg("trace_settings").none(), nb::arg("traces"),
          nb::arg("stream"),
          nb::sig("def run(self, program: Program, arguments: tuple[typing.Any, ...], call_config: "
                  "bytes, "
                  "timeout_s: float | None, task_timeout_s: float | None, hazards: int, "
                  "measures: bool, trace_settings: tuple[int, int, int, int, str | None] | None, "
                  "traces: list[typing.Any], stream: int) -> "
                  "tuple[typing.Any, ...]"),
          "Run a program; return the fields of a RunReport. The trace is appended to `traces`, "
          "also if "
          "the run fails.")
      .def(
          "empty",
          [](Self self, nb::handle shape, nb::handle dtype) {
            return device(self).empty(self, shape, dtype);
          },
          nb::arg("shape").none(), nb::arg("dtype").none(),
          nb::sig("def empty(self, shape: int | collections.abc.Sequence[int], dtype: "
                  "numpy.typing.DTypeLike) -> DeviceArray"),
          "Allocate device memory.")
      .def(
          "to_device",
          [](Self self, nb::handle array) { return device(self).to_device(self, array); },
          nb::arg("array").none(), nb::sig("def to_device(self, array: typing.Any) -> DeviceArray"),
          "Copy an array to new device memory.")
      .def("activity", &OpenDevice::activity,
           nb::sig("def activity(self) -> list[tuple[str, int, int, int]]"),
           "Return (kernel name, task, core, func_id) of each running kernel.")
      .def(
          "kernel_counts",
          [](const OpenDevice& self) {
            const KernelCounts counts =
                count_kernels(self.is_open() ? self.backend()->activity(self.handle()) : nullptr);
            return nb::make_tuple(counts.begun, counts.ended);
          },
          nb::sig("def kernel_counts(self) -> tuple[int, int]"),
          "Return the numbers of kernels that have begun and ended since the device was opened. "
          "They are 0 if the backend has no activity page.");
}

void bind_loading(nb::class_<OpenDevice>& bound) {
  bound
      .def("set_loader", &OpenDevice::set_loader, nb::arg("load"),
           nb::sig("def set_loader(self, load: collections.abc.Callable[[object], None]) -> None"),
           "Set the function that loads a kernel when an orchestration first uses it.")
      .def("load_kernel", &OpenDevice::load_kernel, nb::arg("callable"), nb::kw_only(),
           nb::arg("name"), nb::arg("core_type"), nb::arg("path").none(),
           nb::arg("function").none(), nb::arg("declared").none(), nb::arg("task"),
           nb::sig("def load_kernel(self, callable: object, *, name: str, core_type: int, "
                   "path: str | None, function: collections.abc.Callable[..., object] | None, "
                   "declared: collections.abc.Sequence[tuple[int, collections.abc.Sequence[int] | "
                   "None]] | None, task: tuple[list[tuple[str, int, int]], int, bool, int]) -> "
                   "None"),
           "Load a kernel from the library at `path` or as `function`.")
      .def("load_library", &OpenDevice::load_library, nb::arg("path"),
           "Load the library of an orchestration and return its handle.");
}

}  // namespace

void bind_device(nb::module_& module) {
  nb::class_<OpenDevice> bound(module, "Device", nb::type_slots(device_slots),
                               "An open backend with an attached runtime.");
  bound
      .def(
          "__init__",
          [](OpenDevice* self, const std::string& backend_library,
             const std::string& runtime_library, const std::string& variant,
             const std::vector<std::pair<std::string, std::string>>& artefacts, int32_t number,
             nb::dict backend_options, nb::dict runtime_options) {
            new (self) OpenDevice({backend_library, runtime_library, variant, artefacts, number,
                                   std::move(backend_options), std::move(runtime_options)});
          },
          nb::kw_only(), nb::arg("backend_library"), nb::arg("runtime_library"), nb::arg("variant"),
          nb::arg("artefacts"), nb::arg("number"), nb::arg("backend_options"),
          nb::arg("runtime_options"),
          nb::sig("def __init__(self, *, backend_library: str, runtime_library: str, variant: str, "
                  "artefacts: list[tuple[str, str]], number: int, backend_options: dict[str, str], "
                  "runtime_options: dict[str, str]) -> None"))
      .def("close", &OpenDevice::close, nb::sig("def close(self) -> tuple[int, int]"),
           "Close the device; return the number of buffers and bytes that were not freed.")
      .def(
          "interrupt",
          [](const OpenDevice& self) {
            if (Run* run = self.current_run()) run->interrupt.request();
          },
          "End the run of another thread.")
      .def_prop_ro("is_open", &OpenDevice::is_open, "Whether the device is open in this process.")
      .def_prop_ro("is_lost", &OpenDevice::is_lost,
                   "Whether the device is lost, because a kernel did not return.")
      .def_prop_ro(
          "can_trace",
          [](const OpenDevice& self) {
            return (self.backend()->capabilities & PTO_BACKEND_TRACE) != 0;
          },
          "Whether the backend can trace a run.")
      .def_prop_ro(
          "has_streams",
          [](const OpenDevice& self) {
            return (self.backend()->capabilities & PTO_BACKEND_STREAMS) != 0;
          },
          "Whether a run can wait for a stream of another program.")
      .def_prop_ro(
          "has_tensors", [](const OpenDevice& device) { return device.has(PTO_RUNTIME_TENSORS); },
          "Whether its runtime derives dependencies from the reads and writes of tasks.")
      .def_prop_ro(
          "is_planning_missing",
          [](const OpenDevice& device) {
            return device.has(PTO_RUNTIME_PLANNING) && device.shape().has_planning == 0;
          },
          "Whether the device prevents its runtime from finding sufficient sizes.")
      .def_prop_ro("blocks", &OpenDevice::blocks, "The number of core blocks.")
      .def_prop_ro("process", &process_of,
                   nb::sig("def process(self) -> tuple[str, int, int] | None"),
                   "The label, the number and the ELF machine of the process on the device.");
  bind_use(bound);
  bind_loading(bound);
}

}  // namespace pto::core
