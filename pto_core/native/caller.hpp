// The position of the Python code that called into this module.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <string>
#include <unordered_set>

namespace pto::core {

namespace nb = nanobind;

struct Place {
  const char* file = nullptr;  // NULL if there is no Python code
  int line = -1;
};

// Finds positions and caches them by code object and instruction. A program makes most calls from
// few places, and reading a line number from a code object takes longer than a submit.
class Callers {
 public:
  // Return the position of the innermost Python code; `file` lives as long as this object. Call
  // with the GIL held.
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
