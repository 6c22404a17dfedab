// The source positions of submits, with numbers for code objects. Call with the GIL held.
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

  const std::string own_folder_;                 // the folder of this package
  std::vector<nb::object> codes_{nb::object()};  // code objects of the program; number 0 is none
  std::unordered_map<PyObject*, uint32_t> code_numbers_;  // 0: the code belongs to this package
  std::vector<nb::object> own_codes_;                     // those of this package
  PyObject* last_code_ = nullptr;
  uint32_t last_code_number_ = 0;
};

}  // namespace pto::hierarchy
