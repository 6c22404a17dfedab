#pragma once

#include <nanobind/nanobind.h>

namespace pto::core {

namespace nb = nanobind;

void bind_analysis(nb::module_& module);

}  // namespace pto::core
