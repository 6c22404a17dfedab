// The Python module pto_core._native: devices, arrays and graphs for pto_core.device.

#include <nanobind/nanobind.h>

#include "data_types.hpp"
#include "device.hpp"
#include "device_array.hpp"
#include "errors.hpp"
#include "graph.hpp"
#include "program.hpp"
#include "pto/abi/version.h"
#include "scalars.hpp"
#include "text.hpp"

namespace nb = nanobind;

namespace pto::core {
const char* source_digest();  // in a source that CMake generates
}

NB_MODULE(_native, module) {
  module.doc() = "The native half of pto_core.device; not a public interface.";
  // Disable the leak check: a lost device is leaked on purpose, because a thread may still use it.
  nb::set_leak_warnings(false);
  pto::core::import_numpy();
  pto::core::translate_system_errors();
  module.attr("ABI_VERSION") = PTO_ABI_VERSION;
  // SHA-256 of "<SHA-256 of the content> <path>\n" for each source, sorted by path.
  module.attr("source_digest") = pto::core::source_digest();
  module.def("demangle", &pto::core::demangled, nb::arg("symbol"),
             "Return the demangled C++ name; return other symbols unchanged.");
  pto::core::bind_scalars(module);
  pto::core::bind_device_array(module);
  pto::core::bind_graph(module);
  pto::core::bind_program(module);
  pto::core::bind_device(module);
}
