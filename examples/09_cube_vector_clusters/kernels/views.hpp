// Accessors for the tensor arguments of a kernel. All tensors are row-major; rows of a view are
// `pitch` elements apart.
#pragma once

#include "pto/abi/kernel.h"
#include "pto/abi/tensor.h"

constexpr uint64_t kTile = 32;

using Tensor = const __gm__ pto_tensor_data*;

static inline __aicore__ Tensor tensor(int64_t argument) {
  return reinterpret_cast<Tensor>(argument);
}

static inline __aicore__ __gm__ float* first_element(int64_t argument) {
  const Tensor view = tensor(argument);
  return reinterpret_cast<__gm__ float*>(view->buffer.addr) + view->start_offset;
}

static inline __aicore__ uint64_t pitch(Tensor matrix) {
  return matrix->raw_shapes[1];
}
