// Loading backend and runtime libraries. They stay loaded until the process ends: a thread that a
// lost device left behind may still be inside one.
#pragma once

#include <string>

#include "pto/abi/backend.h"
#include "pto/abi/runtime.h"

namespace pto::core {

// Raise PluginLoadError when the library or its entry is missing, PluginVersionError when it was
// built for another version of the ABI.
const pto_backend_api* load_backend_library(const std::string& path);
const pto_runtime_api* load_runtime_library(const std::string& path, const std::string& variant);

// A C++ symbol as its source has it; any other as it is.
std::string demangled(const std::string& symbol);

}  // namespace pto::core
