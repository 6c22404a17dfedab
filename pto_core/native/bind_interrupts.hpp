#pragma once

#include <nanobind/nanobind.h>

namespace pto::core {

namespace nb = nanobind;

void bind_interrupts(nb::module_& module);

}  // namespace pto::core
