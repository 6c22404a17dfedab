// Shapes and data types, interned: two arrays have the same View exactly when both agree.
//
// Used with the GIL held. Views live as long as their table.
#pragma once

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

  // A NumPy array over `address`, which must stay valid while the array is used.
  PyObject* array_at(uint64_t address, bool is_writable) const;
};

// Raises UsageError when that is more than can be counted.
uint64_t bytes_of(uint8_t code, const std::vector<npy_intp>& shape);

class ViewTable {
 public:
  const View* intern(uint8_t code, const npy_intp* shape, size_t dimensions);

 private:
  const View* last_ = nullptr;  // what intern() gave; the next one is most likely the same
  std::map<std::pair<uint8_t, std::vector<npy_intp>>, std::unique_ptr<View>> views_;
};

// A shape given by a user, an int or a sequence of ints; raises UsageError.
std::vector<npy_intp> shape_of_object(nanobind::handle shape);
// A sequence of integers of any sign; raises UsageError.
std::vector<npy_intp> integers_of_object(nanobind::handle integers);

nanobind::tuple shape_tuple(const View& view);

}  // namespace pto::core
