// An engine in Python (pto_core.interfaces.Scheduler) as an Engine: creates the events and reads
// the instructions.
//
// Every call needs the GIL. Exceptions of the engine pass through as nanobind::python_error.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "engine/interface.hpp"

namespace pto::hierarchy {

std::unique_ptr<Engine> make_python_engine(nanobind::object engine);

}  // namespace pto::hierarchy
