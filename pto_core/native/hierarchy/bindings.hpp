// What each room of the hierarchy adds to the Python module pto_core._hierarchy.
#pragma once

#include <nanobind/nanobind.h>

namespace pto::hierarchy {

namespace nb = nanobind;

}  // namespace pto::hierarchy
