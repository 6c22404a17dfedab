// Views of a buffer in the form of pto_tensor_data: a box of the buffer, and the order of its
// dimensions.
//
// If an integer index removes a dimension, the layout keeps it with extent 1, so that the box has
// as many dimensions as the buffer. A bit in `dropped` hides the dimension from Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "numpy_api.hpp"
#include "pto/abi/tensor.h"

namespace pto::core {

using Extents = std::vector<npy_intp>;

// Return the view of a whole buffer of this shape, which has at most PTO_MAX_DIMS dimensions.
pto_tensor_data whole_tensor(uint8_t code, const Extents& shape, uint64_t bytes);

// Return the number of elements from one index of dimension `dim` to the next.
uint64_t stride_of(const pto_tensor_data& data, uint32_t dim);
inline bool is_dropped(const pto_tensor_data& data, uint32_t dim) {
  return (data.dropped >> dim & 1) != 0;
}
// Return the extents of the dimensions that Python shows.
Extents shown_shape(const pto_tensor_data& data);
bool is_contiguous(const pto_tensor_data& data);

void cut(pto_tensor_data& data, uint32_t dim, uint64_t first, uint64_t count);
void drop(pto_tensor_data& data, uint32_t dim);
// Permute the dimensions. `axes`: the shown dimensions in their new order.
void permute(pto_tensor_data& data, const std::vector<uint32_t>& axes);
// Reshape a contiguous view. The number of elements does not change.
void give_shape(pto_tensor_data& data, const Extents& shape);

// Return a new reference to a NumPy array over the view, which must stay valid while the array is
// used; null with an exception set. A pipe is None.
PyObject* array_of(const pto_tensor_data& data);

}  // namespace pto::core
