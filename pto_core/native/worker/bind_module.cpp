// The Python module pto_core._worker: the native side of pto_core.worker.
//
// Each folder has its own bindings: bind_<folder>.cpp, declared in bindings.hpp.

#include <nanobind/nanobind.h>

#include "bindings.hpp"

namespace pto::core {
const char* source_digest();  // in a source that CMake generates
}

NB_MODULE(_worker, module) {
  module.doc() = "The native half of pto_core.worker; not a public interface.";
  // Disable the leak check: it would report each Worker that the program did not close, or that a
  // child inherited.
  nanobind::set_leak_warnings(false);
  pto::worker::bind_arguments(module);
  pto::worker::bind_callable(module);
  pto::worker::bind_engine(module);
  pto::worker::bind_child(module);
  pto::worker::bind_driver(module);
  pto::worker::bind_endpoint(module);
  pto::worker::bind_orchestrator(module);
  pto::worker::bind_processes(module);
  pto::worker::bind_remote(module);
  // SHA-256 of "<SHA-256 of the content> <path>\n" for each source, sorted by path.
  module.attr("source_digest") = pto::core::source_digest();
}
