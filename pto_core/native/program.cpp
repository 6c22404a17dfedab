#include "program.hpp"

#include <nanobind/stl/vector.h>

#include "device.hpp"
#include "errors.hpp"

namespace pto::core {

std::string Program::describe_argument(size_t position) const {
  std::string text = "argument " + std::to_string(position);
  if (position < parameters.size()) text += " ('" + parameters[position] + "')";
  return text + " of orchestration '" + name + "'";
}

std::string Program::argument_name(size_t position) const {
  return position < parameters.size() ? parameters[position]
                                      : "argument " + std::to_string(position);
}

const LoadedKernel* Program::child(int64_t func_id) const {
  for (const Child& child : children)
    if (child.func_id == func_id) return child.kernel;
  return nullptr;
}

namespace {

void make_program(Program* program, std::string name, std::vector<std::string> parameters,
                  int64_t required, int64_t maximum, nb::bytes directions,
                  std::vector<int8_t> codes, bool by_tensor, nb::object function, uint64_t library,
                  std::string entry) {
  new (program) Program();
  program->name = std::move(name);
  program->parameters = std::move(parameters);
  program->required = required;
  program->maximum = maximum;
  for (size_t i = 0; i < directions.size(); ++i)
    program->directions.push_back(static_cast<Direction>(directions.c_str()[i]));
  program->codes = std::move(codes);
  program->by_tensor = by_tensor;
  if (!function.is_none()) program->function = std::move(function);
  program->library = library;
  program->entry = std::move(entry);
}

// For the garbage collector: the global variables of an orchestration may refer to the device that
// keeps this program.
int traverse_program(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Program>(self)->function.ptr());
  return 0;
}

int clear_program(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Program>(self)->function.reset();
  return 0;
}

PyType_Slot program_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_program)},
                               {Py_tp_clear, reinterpret_cast<void*>(&clear_program)},
                               {0, nullptr}};

}  // namespace

void bind_program(nb::module_& module) {
  nb::class_<Program>(module, "Program", nb::type_slots(program_slots),
                      "A chip callable that is prepared for one device.")
      .def("__init__", &make_program, nb::kw_only(), nb::arg("name"), nb::arg("parameters"),
           nb::arg("required"), nb::arg("maximum"), nb::arg("directions"), nb::arg("codes"),
           nb::arg("by_tensor"), nb::arg("function") = nb::none(), nb::arg("library") = 0,
           nb::arg("entry") = "",
           "`directions`: each byte is a pto_core.kernels.Direction. `codes`: for each direction "
           "the "
           "DataType, or -1. `maximum`: -1 means no limit.")
      .def_ro("name", &Program::name, "The name of the orchestration.")
      .def_prop_ro("is_python", &Program::is_python,
                   "Whether the orchestration is a Python function.")
      .def(
          "add_child",
          [](Program& self, int32_t func_id, const Device& device, nb::handle callable) {
            const LoadedKernel* kernel = device.kernels().find(callable.ptr());
            if (!kernel) raise_usage("kernel " + shown(callable) + " is not loaded");
            self.children.push_back({func_id, kernel});
          },
          nb::arg("func_id"), nb::arg("device"), nb::arg("callable"),
          nb::sig("def add_child(self, func_id: int, device: Device, callable: object) -> None"),
          "Register a kernel, which the device has loaded, under its id in this chip.");
}

}  // namespace pto::core
