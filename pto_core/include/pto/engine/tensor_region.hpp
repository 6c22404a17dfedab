// The region of memory that a tensor's view covers.
#pragma once

#include <cstdint>

#include "pto/abi/dtype.h"
#include "pto/abi/tensor.h"
#include "pto/engine/region.hpp"

namespace pto::engine {

// The size of an element, indexed by PTO_DTYPE_*.
inline constexpr uint8_t kElementBytes[] = {4, 2, 4, 2, 1, 1, 2, 8, 8, 8, 1, 2, 4, 8, 16, 1, 1};
static_assert(sizeof kElementBytes == PTO_DTYPE_COUNT, "one for each data type");

// Return whether the tensor is a key: it orders tasks by its address only, and covers no bytes.
inline bool is_key(const pto_tensor_data& tensor) {
  if (tensor.is_pipe != 0) return true;
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) {
    if (tensor.shapes[dim] == 0) return true;
  }
  return false;
}

// Build the region of the view in `region`, a new object. The view must lie inside its raw shape.
inline void locate_region(const pto_tensor_data& tensor, Region& region) {
  const uint64_t element = kElementBytes[tensor.dtype];
  const uint64_t first = tensor.buffer.addr + tensor.start_offset * element;
  uint32_t dim_in_memory[PTO_MAX_DIMS] = {};
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) dim_in_memory[tensor.order[dim]] = dim;
  RegionBuilder builder(region, first, element, tensor.owner);
  for (uint32_t place = tensor.ndims; place-- > 0;) {
    const uint32_t dim = dim_in_memory[place];
    builder.add(tensor.raw_shapes[dim], tensor.offsets[dim], tensor.shapes[dim]);
  }
  builder.finish();
}

}  // namespace pto::engine
