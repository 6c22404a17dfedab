// Loads backend and runtime libraries. A library stays loaded until the process exits, because a
// thread of a lost device may still run its code.
#pragma once

#include <string>

#include "pto/abi/backend.h"
#include "pto/abi/runtime.h"

namespace pto::core {

// Raise PluginLoadError if the library or its entry is missing, PluginVersionError if it was built
// for another version of the ABI.
const pto_backend_api* load_backend_library(const std::string& path);
const pto_runtime_api* load_runtime_library(const std::string& path, const std::string& variant);

// Return a C++ symbol demangled, and any other symbol unchanged.
std::string demangled(const std::string& symbol);

}  // namespace pto::core
