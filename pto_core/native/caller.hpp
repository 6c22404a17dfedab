// Where the Python code is that called into this module.
#pragma once

#include <string>

namespace pto::core {

struct Place {
  std::string file;  // empty when there is no Python code
  int line = -1;
};

// With the GIL held.
Place place_of_caller();

}  // namespace pto::core
