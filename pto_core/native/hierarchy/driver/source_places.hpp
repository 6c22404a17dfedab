// Where in the program tasks are submitted: numbers for the code objects. With the GIL.
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

  // Of the innermost frame that is not of this package.
  Place of_caller();
  // (file, line), or (None, None) where it is not known.
  nb::object file_and_line(const Place& place) const;

 private:
  uint32_t code_number(PyObject* code);

  const std::string own_folder_;                          // of this package
  std::vector<nb::object> codes_{nb::object()};           // of the program; number 0 is none
  std::unordered_map<PyObject*, uint32_t> code_numbers_;  // 0: of this package
  std::vector<nb::object> own_codes_;                     // those of this package
  PyObject* last_code_ = nullptr;
  uint32_t last_code_number_ = 0;
};

}  // namespace pto::hierarchy
