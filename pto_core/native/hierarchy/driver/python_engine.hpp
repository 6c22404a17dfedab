// Adapts an engine in Python (pto_core.interfaces.Scheduler) to the interface Engine: creates event
// objects and reads instructions.
//
// Every call requires the GIL. An exception of the engine propagates as nanobind::python_error.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "engine/interface.hpp"

namespace pto::hierarchy {

std::unique_ptr<Engine> make_python_engine(nanobind::object engine);

}  // namespace pto::hierarchy
