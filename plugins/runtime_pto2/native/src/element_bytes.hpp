// The size of an element of each data type.
#pragma once

#include <cstdint>

#include "pto/abi/dtype.h"

namespace pto::ring_buffer {

// Indexed by PTO_DTYPE_*.
inline constexpr uint8_t kElementBytes[] = {4, 2, 4, 2, 1, 1, 2, 8, 8, 8, 1, 2, 4, 8, 16};
static_assert(sizeof kElementBytes == PTO_DTYPE_COMPLEX128 + 1, "each data type needs a size");

}  // namespace pto::ring_buffer
