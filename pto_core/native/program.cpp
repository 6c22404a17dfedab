#include "program.hpp"

#include <nanobind/stl/vector.h>

#include <cxxabi.h>
#include <dlfcn.h>
#include <cstdlib>
#include <memory>

#include "device.hpp"
#include "errors.hpp"

namespace pto::core {
namespace {

void* symbol_of(const std::string& path, const char* symbol) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    raise_error("PluginLoadError", "the native library " + path + " cannot be loaded: " +
                                       (reason ? reason : "unknown reason") +
                                       "; reinstall its plugin");
  }
  void* found = dlsym(library, symbol);
  if (!found) {
    raise_error("PluginLoadError", "the native library " + path + " does not export " + symbol +
                                       "; it is not a plugin library of this family");
  }
  return found;
}

[[noreturn]] void raise_version(const std::string& path, const char* what, uint64_t wanted,
                                uint64_t found) {
  nb::dict fields;
  fields["wanted"] = wanted;
  fields["found"] = found;
  raise_error("PluginVersionError",
              "the native library " + path + " was built with " + what + " " +
                  std::to_string(found) + ", but this core needs " + std::to_string(wanted) +
                  "; install a plugin and a ptorun-core that were built for each other",
              fields);
}

// Return the table if it has the right version and size. Check the version first, because a table
// of another version may have another size.
template <class Table>
const Table* checked(const std::string& path, const Table* table, const char* kind) {
  if (table->abi_version != PTO_ABI_VERSION)
    raise_version(path, "native ABI version", PTO_ABI_VERSION, table->abi_version);
  if (table->struct_size != sizeof(Table))
    raise_version(path, kind, sizeof(Table), table->struct_size);
  return table;
}

}  // namespace

const pto_backend_api* load_backend_library(const std::string& path) {
  auto entry = reinterpret_cast<pto_backend_entry_fn>(symbol_of(path, PTO_BACKEND_ENTRY_SYMBOL));
  const pto_backend_api* table = entry();
  if (!table) raise_error("PluginLoadError", path + " returns no backend table; reinstall it");
  return checked(path, table, "a backend table of size");
}

const pto_runtime_api* load_runtime_library(const std::string& path, const std::string& variant) {
  auto entry = reinterpret_cast<pto_runtime_entry_fn>(symbol_of(path, PTO_RUNTIME_ENTRY_SYMBOL));
  const pto_runtime_api* table = entry(variant.c_str());
  if (!table) {
    raise_error("PluginLoadError",
                path + " has no runtime variant '" + variant +
                    "', so the plugin and its native library do not match; reinstall the plugin");
  }
  return checked(path, table, "a runtime table of size");
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return name ? name.get() : symbol;
}

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
  for (const ChildKernel& child : children)
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
    program->directions.push_back(static_cast<Tag>(directions.c_str()[i]));
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
          [](Program& self, int32_t func_id, const OpenDevice& device, nb::handle callable) {
            const LoadedKernel* kernel = device.kernels().find(callable.ptr());
            if (!kernel) raise_usage("kernel " + shown(callable) + " is not loaded");
            self.children.push_back({func_id, kernel});
          },
          nb::arg("func_id"), nb::arg("device"), nb::arg("callable"),
          nb::sig("def add_child(self, func_id: int, device: Device, callable: object) -> None"),
          "Register a kernel, which the device has loaded, under its id in this chip.");
}

}  // namespace pto::core
