// The reference engine, which is Python, as an Engine: its events are made, its answers read.
//
// Every call needs the GIL. What it raises goes through as nanobind::python_error.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "engine/interface.hpp"

namespace pto::hierarchy {

std::unique_ptr<Engine> make_reference_engine(const Configuration& configuration,
                                              const nanobind::object& policy);

}  // namespace pto::hierarchy
