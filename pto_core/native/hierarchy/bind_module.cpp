// The Python module pto_core._hierarchy: the native side of pto_core.hierarchy.
//
// Each folder has its own bindings: bind_<folder>.cpp, declared in bindings.hpp.

#include <nanobind/nanobind.h>

#include "bindings.hpp"

namespace pto::core {
const char* source_digest();  // in a source that CMake generates
}

NB_MODULE(_hierarchy, module) {
  module.doc() = "The native half of pto_core.hierarchy; not a public interface.";
  // Disable the leak check: it would report each Worker that the program did not close, or that a
  // child inherited.
  nanobind::set_leak_warnings(false);
  pto::hierarchy::bind_arguments(module);
  pto::hierarchy::bind_callable(module);
  pto::hierarchy::bind_engine(module);
  pto::hierarchy::bind_child(module);
  pto::hierarchy::bind_driver(module);
  pto::hierarchy::bind_endpoint(module);
  pto::hierarchy::bind_orchestrator(module);
  pto::hierarchy::bind_processes(module);
  pto::hierarchy::bind_remote(module);
  // SHA-256 of "<SHA-256 of the content> <path>\n" for each source, sorted by path.
  module.attr("source_digest") = pto::core::source_digest();
}
