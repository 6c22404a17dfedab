// What each room of the hierarchy adds to the Python module pto_core._hierarchy.
#pragma once

#include <nanobind/nanobind.h>

namespace pto::hierarchy {

namespace nb = nanobind;

void bind_arguments(nb::module_& module);
void bind_callable(nb::module_& module);
void bind_engine(nb::module_& module);
void bind_child(nb::module_& module);
void bind_driver(nb::module_& module);
void bind_orchestrator(nb::module_& module);
void bind_endpoint(nb::module_& module);
void bind_processes(nb::module_& module);

}  // namespace pto::hierarchy
