// Accessors for the tensor arguments of a kernel. All tensors are row-major; rows of a view are
// `pitch` elements apart.
#pragma once

#include <cstdint>

#include "tensor.h"

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

constexpr uint64_t kTile = 32;

inline const TensorData& tensor(int64_t argument) {
  return *reinterpret_cast<const TensorData*>(argument);
}

inline float* first_element(int64_t argument) {
  const TensorData& view = tensor(argument);
  return reinterpret_cast<float*>(view.buffer.addr) + view.start_offset;
}

inline uint64_t pitch(const TensorData& matrix) {
  return matrix.raw_shapes[1];
}
