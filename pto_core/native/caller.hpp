// Where the Python code is that called into this module.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <string>
#include <unordered_set>

namespace pto::core {

namespace nb = nanobind;

struct Place {
  const char* file = nullptr;  // NULL when there is no Python code
  int line = -1;
};

// A program calls from few places again and again, and to read a line out of a code object costs
// more than a submit; so places are remembered by code object and instruction.
class Callers {
 public:
  // Of the innermost Python code; `file` lives as long as this object. With the GIL held.
  Place here();

 private:
  struct Known {
    nb::object code;
    int instruction = -1;
    Place place;
  };

  Place look_up(PyFrameObject* frame, nb::handle code);

  static constexpr size_t kRemembered = 64;

  std::array<Known, kRemembered> known_;
  std::unordered_set<std::string> files_;
};

}  // namespace pto::core
