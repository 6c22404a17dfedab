// The Python module pto_core._native: devices, arrays and graphs for pto_core.device.

#include <nanobind/nanobind.h>

#include "data_types.hpp"
#include "device.hpp"
#include "device_array.hpp"
#include "graph.hpp"
#include "program.hpp"
#include "pto/abi/version.h"

NB_MODULE(_native, module) {
  module.doc() = "The native half of pto_core.device; not a public interface.";
  pto::core::import_numpy();
  module.attr("ABI_VERSION") = PTO_ABI_VERSION;
  pto::core::bind_device_array(module);
  pto::core::bind_graph(module);
  pto::core::bind_program(module);
  pto::core::bind_device(module);
}
