#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "bindings.hpp"
#include "callable/callable_handle.hpp"
#include "errors.hpp"

namespace pto::hierarchy {
namespace {

Digest digest_of(const nb::bytes& bytes) {
  Digest digest;
  if (bytes.size() != digest.size())
    core::raise_usage("a digest of " + std::to_string(bytes.size()) + " bytes; it has 32");
  std::memcpy(digest.data(), bytes.data(), digest.size());
  return digest;
}

nb::bytes digest(const CallableHandle& handle) {
  return nb::bytes(handle.digest.data(), handle.digest.size());
}

void make(CallableHandle* handle, const nb::bytes& digest, CallableKind kind, CallableSpace space,
          const std::string& name, uint64_t owner) {
  new (handle) CallableHandle{digest_of(digest), kind, space, name, owner};
}

std::string shown(const CallableHandle& handle) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string start;
  for (int i = 0; i < 4; ++i) {
    start += kDigits[handle.digest[static_cast<size_t>(i)] >> 4];
    start += kDigits[handle.digest[static_cast<size_t>(i)] & 15];
  }
  return "<CallableHandle '" + handle.name + "' " + start + (handle.is_alive ? ">" : ", dead>");
}

}  // namespace

void bind_callable(nb::module_& module) {
  nb::enum_<CallableKind>(module, "CallableKind", nb::is_arithmetic())
      .value("CHIP", CallableKind::kChip, "An orchestration with its kernels.")
      .value("PYTHON_IMPORT", CallableKind::kPythonImport, "A function, by its import path.")
      .value("PYTHON_SERIALISED", CallableKind::kPythonSerialised, "A function, by its bytes.")
      .value("PYTHON_INHERITED", CallableKind::kPythonInherited,
             "A function that children have from the fork.");
  nb::enum_<CallableSpace>(module, "CallableSpace", nb::is_arithmetic())
      .value("LOCAL_CHIP", CallableSpace::kLocalChip, "Chip children.")
      .value("LOCAL_PYTHON", CallableSpace::kLocalPython, "SUB children and child Workers.")
      .value("REMOTE_TASK_DISPATCHER", CallableSpace::kRemoteTaskDispatcher,
             "Workers on other hosts.");
  nb::class_<CallableHandle>(module, "CallableHandle",
                             "What Worker.register gives, to be submitted; see Worker.register.")
      .def("__init__", &make, nb::arg("digest"), nb::arg("kind"), nb::arg("space"), nb::arg("name"),
           nb::arg("owner"), "Only Worker.register makes one.")
      .def_prop_ro("digest", &digest, "32 bytes that mean the same callable in every process.")
      .def_prop_ro(
          "kind", [](const CallableHandle& handle) { return handle.kind; }, "How it is known.")
      .def_prop_ro(
          "namespace", [](const CallableHandle& handle) { return handle.space; },
          "Which children can run it.")
      .def_prop_ro(
          "name", [](const CallableHandle& handle) { return handle.name; }, "For messages.")
      .def_prop_ro(
          "owner", [](const CallableHandle& handle) { return handle.owner; },
          "The number of its Worker.")
      .def_rw("is_alive", &CallableHandle::is_alive, "False once it is unregistered.")
      .def("__repr__", &shown);
}

}  // namespace pto::hierarchy
