// Accessors for the tensor arguments of a kernel. All tensors are row-major, and contiguous from
// their first element on.
#pragma once

#include <cstdint>

#include "tensor.h"

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

inline const TensorData& tensor(int64_t argument) {
  return *reinterpret_cast<const TensorData*>(argument);
}

// Returns the first element of a view.
template <typename T>
T* first_element(int64_t argument) {
  const TensorData& view = tensor(argument);
  return reinterpret_cast<T*>(view.buffer.addr) + view.start_offset;
}
