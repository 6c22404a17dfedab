// What is known about a chip before it runs: made once, used by every run of it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernel_table.hpp"

namespace pto::core {

namespace nb = nanobind;

struct Child {
  int32_t func_id;
  const LoadedKernel* kernel;
};

struct Program {
  std::string name;
  std::vector<std::string> parameters;  // of the orchestration, as far as their names are known
  int64_t required = 0;                 // fewest arguments
  int64_t maximum = -1;                 // most arguments, -1 is any number
  std::vector<Direction> directions;    // by argument, or by tensor when `by_tensor`
  bool by_tensor = false;
  nb::object function;   // the Python orchestration; invalid for a C++ one
  uint64_t library = 0;  // the C++ orchestration
  std::string entry;     // its function, empty for the runtime's default
  std::vector<Child> children;

  bool is_python() const { return function.is_valid(); }
  std::string describe_argument(size_t position) const;
  const LoadedKernel* child(int64_t func_id) const;
};

void bind_program(nb::module_& module);

}  // namespace pto::core
