#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>
#include <tuple>

#include "bindings.hpp"
#include "callable/live_callables.hpp"
#include "errors.hpp"
#include "text.hpp"

namespace pto::worker {
namespace {

template <class Bytes>
Bytes bytes_of(const nb::bytes& given, const char* name) {
  Bytes bytes;
  if (given.size() != bytes.size()) {
    core::raise_usage(std::string(name) + " has " + std::to_string(given.size()) + " bytes; pass " +
                      std::to_string(bytes.size()));
  }
  std::memcpy(bytes.data(), given.data(), bytes.size());
  return bytes;
}

template <class Bytes>
nb::bytes shown_bytes(const Bytes& bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

using Parts = std::tuple<nb::bytes, CallableKind, CallableSpace, std::string, nb::bytes, nb::bytes>;

Parts parts_of(const CallableHandle& handle) {
  return {shown_bytes(handle.digest),
          handle.kind,
          handle.space,
          handle.name,
          shown_bytes(handle.worker),
          shown_bytes(handle.registration)};
}

void restore(CallableHandle& handle, const Parts& parts) {
  const auto& [digest, kind, space, name, worker, registration] = parts;
  new (&handle) CallableHandle{bytes_of<Digest>(digest, "digest"),
                               kind,
                               space,
                               name,
                               bytes_of<Identity>(worker, "worker"),
                               bytes_of<Identity>(registration, "registration")};
}

bool is_equal(const CallableHandle& handle, nb::handle other) {
  return nb::isinstance<CallableHandle>(other) && nb::inst_ready(other) &&
         nb::inst_ptr<CallableHandle>(other)->registration == handle.registration;
}

std::string text_of(const CallableHandle& handle) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string start;
  for (int i = 0; i < 4; ++i) {
    start += kDigits[handle.digest[static_cast<size_t>(i)] >> 4];
    start += kDigits[handle.digest[static_cast<size_t>(i)] & 15];
  }
  return "<CallableHandle '" + handle.name + "' " + start + ">";
}

void bind_live_callables(nb::module_& module) {
  nb::class_<LiveCallables>(module, "LiveCallables", "The live registrations of one Worker.")
      .def(
          "__init__",
          [](LiveCallables* self, const nb::bytes& worker) {
            new (self) LiveCallables(bytes_of<Identity>(worker, "worker"));
          },
          nb::arg("worker"), "`worker`: the Worker's identity, 16 random bytes.")
      .def_prop_ro(
          "worker", [](const LiveCallables& self) { return shown_bytes(self.worker()); },
          "The identity of the Worker.")
      .def(
          "make",
          [](const LiveCallables& self, const nb::bytes& digest, CallableKind kind,
             CallableSpace space, const std::string& name, const nb::bytes& registration) {
            return CallableHandle{bytes_of<Digest>(digest, "digest"),
                                  kind,
                                  space,
                                  name,
                                  self.worker(),
                                  bytes_of<Identity>(registration, "registration")};
          },
          nb::arg("digest"), nb::arg("kind"), nb::arg("space"), nb::arg("name"),
          nb::arg("registration"),
          "Return a handle that is not live yet. `registration`: 16 random bytes that identify it.")
      .def("add", &LiveCallables::add, nb::arg("handle"),
           nb::arg("workers") = std::vector<int32_t>(), nb::arg("scalars") = std::vector<int>(),
           "Make the handle live. `workers`: the ids of the children that have the callable; "
           "empty: all children of its namespace. `scalars`: for a chip whose signature declares "
           "types of scalars, the DataType of each scalar, or -1.")
      .def("remove", &LiveCallables::remove, nb::arg("handle"),
           "End the registration of the handle; return whether it was live.")
      .def("has", &LiveCallables::has, nb::arg("handle"),
           "Return whether the registration of the handle is live.")
      .def("close", &LiveCallables::close, "End all registrations: the Worker is closed.")
      .def(
          "check", [](const LiveCallables& self, nb::handle object) { self.check(object); },
          nb::arg("handle").none(), nb::sig("def check(self, handle: object) -> None"),
          "Raise UsageError unless `handle` is a live handle of this Worker, or a copy of one. "
          "Raise WorkerClosedError after close().");
}

}  // namespace

void bind_callable(nb::module_& module) {
  nb::enum_<CallableKind>(module, "CallableKind", nb::is_arithmetic())
      .value("CHIP", CallableKind::kChip, "An orchestration with its kernels.")
      .value("PYTHON_IMPORT", CallableKind::kPythonImport, "A function, by its import path.")
      .value("PYTHON_SERIALISED", CallableKind::kPythonSerialised, "A function, by its bytes.")
      .value("PYTHON_INHERITED", CallableKind::kPythonInherited,
             "A function that children inherit by the fork.");
  nb::enum_<CallableSpace>(module, "CallableSpace", nb::is_arithmetic())
      .value("LOCAL_CHIP", CallableSpace::kLocalChip, "Chip children.")
      .value("LOCAL_PYTHON", CallableSpace::kLocalPython, "SUB children and child Workers.")
      .value("REMOTE_TASK_DISPATCHER", CallableSpace::kRemoteTaskDispatcher,
             "Workers on other hosts.");
  nb::class_<CallableHandle>(
      module, "CallableHandle",
      "The result of Worker.register, which submits accept as their callable; see "
      "Worker.register. It can be copied and pickled: a copy is equal and "
      "can be used in place of the original.")
      .def_prop_ro(
          "digest", [](const CallableHandle& handle) { return shown_bytes(handle.digest); },
          "32 bytes that identify the callable in every process.")
      .def_prop_ro(
          "kind", [](const CallableHandle& handle) { return handle.kind; },
          "How children obtain the callable.")
      .def_prop_ro(
          "namespace", [](const CallableHandle& handle) { return handle.space; },
          "The kind of children that can run the callable.")
      .def_prop_ro(
          "name", [](const CallableHandle& handle) { return handle.name; },
          "The name of the callable in messages.")
      .def_prop_ro(
          "worker", [](const CallableHandle& handle) { return shown_bytes(handle.worker); },
          "The identity of its Worker: 16 random bytes.")
      .def_prop_ro(
          "registration",
          [](const CallableHandle& handle) { return shown_bytes(handle.registration); },
          "The identity of its registration: 16 random bytes.")
      .def("__getstate__", &parts_of)
      .def("__setstate__", &restore)
      .def("__eq__", &is_equal, nb::arg("other").none(),
           nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const CallableHandle& handle) { return nb::hash(shown_bytes(handle.registration)); })
      .def("__repr__", &text_of);
  bind_live_callables(module);
}

}  // namespace pto::worker
