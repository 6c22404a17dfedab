// The properties of a ChipCallable that are the same for all its runs. They are built once.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernel_table.hpp"
#include "pto/abi/backend.h"
#include "pto/abi/runtime.h"

namespace pto::core {

namespace nb = nanobind;

// Loads backend and runtime libraries. A library stays loaded until the process exits, because a
// thread of a lost device may still run its code.
//
// Raise PluginLoadError if the library or its entry is missing, PluginVersionError if it was built
// for another version of the ABI.
const pto_backend_api* load_backend_library(const std::string& path);
const pto_runtime_api* load_runtime_library(const std::string& path, const std::string& variant);

// Return a C++ symbol demangled, and any other symbol unchanged.
std::string demangled(const std::string& symbol);

struct ChildKernel {
  int32_t func_id;
  const LoadedKernel* kernel;
};

struct Program {
  std::string name;
  std::vector<std::string> parameters;  // names of the orchestration's parameters, if known
  int64_t required = 0;                 // minimum number of arguments
  int64_t maximum = -1;                 // maximum number of arguments; -1 means no limit
  // one for each argument, or for each tensor if `by_tensor` is set
  std::vector<Tag> directions;
  bool by_tensor = false;
  std::vector<int8_t> codes;  // for each direction the declared data type, or kNoType
  nb::object function;        // the Python orchestration; invalid for a C++ one
  uint64_t library = 0;       // the C++ orchestration
  std::string entry;          // name of its entry function; empty: the runtime's default
  std::vector<ChildKernel> children;

  bool is_python() const { return function.is_valid(); }
  std::string describe_argument(size_t position) const;
  std::string argument_name(size_t position) const;
  const LoadedKernel* child(int64_t func_id) const;
};

void bind_program(nb::module_& module);

}  // namespace pto::core
