// The bindings of each folder of native/worker, for the module pto_core._worker.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "engine/interface.hpp"

namespace pto::worker {

namespace nb = nanobind;

template <class Type>
inline Type* at(uintptr_t address) {
  return reinterpret_cast<Type*>(address);  // NOLINT: an address that this module returned
}

void bind_arguments(nb::module_& module);
void bind_callable(nb::module_& module);
void bind_engine(nb::module_& module);
// Return the function with which the engine asks a policy. `policy`: None, which selects the
// default; the policy near_inputs, which is called without Python; or a Python object, which has
// the method pick or is called itself. A Python policy runs with the driver role, so it must return
// quickly, and cannot call the driver.
Policy policy_of(nb::object policy);
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

}  // namespace pto::worker
