// The bindings of each folder of the hierarchy, for the module pto_core._hierarchy.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace pto::hierarchy {

namespace nb = nanobind;

template <class Type>
inline Type* at(uintptr_t address) {
  return reinterpret_cast<Type*>(address);  // NOLINT: an address that this module returned
}

void bind_arguments(nb::module_& module);
void bind_callable(nb::module_& module);
void bind_engine(nb::module_& module);
class WorkerDriver;

void bind_child(nb::module_& module);
// The methods of Driver with which graphs are captured and replayed.
void bind_capture(nb::module_& module, nb::class_<WorkerDriver>& driver);
// The methods of Driver that trace runs.
void bind_trace(nb::module_& module, nb::class_<WorkerDriver>& driver);
void bind_driver(nb::module_& module);
void bind_orchestrator(nb::module_& module);
// Return a new Orchestrator of a run or capture, which is a RunObject.
nb::object make_orchestrator(nb::object run);
void bind_endpoint(nb::module_& module);
void bind_processes(nb::module_& module);
void bind_remote(nb::module_& module);

}  // namespace pto::hierarchy
