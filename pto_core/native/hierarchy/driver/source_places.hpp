// The source positions of submits. Code objects are identified by numbers. Call with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/records.hpp"

namespace pto::hierarchy {

namespace nb = nanobind;

class SourcePlaces {
 public:
  SourcePlaces();

  // Return the position of the innermost frame outside of this package.
  Place of_caller();
  // Return (file, line), or (None, None) if unknown.
  nb::object file_and_line(const Place& place) const;

 private:
  uint32_t code_number(PyObject* code);

  const std::string own_folder_;  // the folder of this package
  // code objects of the program, by number; number 0 means unknown
  std::vector<nb::object> codes_{nb::object()};
  // number of each code object; 0 for code of this package
  std::unordered_map<PyObject*, uint32_t> code_numbers_;
  std::vector<nb::object> own_codes_;  // code objects of this package
  PyObject* last_code_ = nullptr;
  uint32_t last_code_number_ = 0;
};

}  // namespace pto::hierarchy
