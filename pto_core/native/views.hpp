// Views: combinations of a shape and a data type. Each combination is stored once, so two arrays
// have the same View if and only if their shapes and their data types are equal.
//
// Used with the GIL held. Views live as long as their table.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "numpy_api.hpp"

namespace pto::core {

struct View {
  uint8_t code;
  std::vector<npy_intp> shape;
  uint64_t bytes;

  // Return a NumPy array over `address`, which must stay valid while the array is used.
  PyObject* array_at(uint64_t address, bool is_writable) const;
};

// Return the size of an array. Raises UsageError if the size does not fit in 64 bits.
uint64_t bytes_of(uint8_t code, const std::vector<npy_intp>& shape);

class ViewTable {
 public:
  const View* intern(uint8_t code, const npy_intp* shape, size_t dimensions);

 private:
  // the last result of intern(), which the next call often returns too
  const View* last_ = nullptr;
  std::map<std::pair<uint8_t, std::vector<npy_intp>>, std::unique_ptr<View>> views_;
};

// Return the shape that the user passed as an int or a sequence of ints. Raises UsageError if it is
// not valid.
std::vector<npy_intp> shape_of_object(nanobind::handle shape);
// Return the integers of a sequence. They may be negative. Raises UsageError if the object is not a
// sequence of integers.
std::vector<npy_intp> integers_of_object(nanobind::handle integers);

nanobind::tuple shape_tuple(const View& view);

}  // namespace pto::core
