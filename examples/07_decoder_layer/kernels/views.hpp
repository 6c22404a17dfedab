// Accessors for the tensor arguments of a kernel. All tensors are row-major; rows of a view are
// `pitch` elements apart.
#pragma once

#include <cstdint>
#include <cstring>

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

// Returns the number of elements from one index of dimension `dimension` to the next.
inline uint64_t pitch(const TensorData& view, uint32_t dimension = 0) {
  uint64_t elements = 1;
  for (uint32_t i = dimension + 1; i < view.ndims; ++i) elements *= view.raw_shapes[i];
  return elements;
}

inline float float_scalar(int64_t argument) {
  float value;
  std::memcpy(&value, &argument, sizeof(value));  // the low 32 bits: a2a3 is little-endian
  return value;
}

// Returns the number of tokens of a sequence in its block number `block`; 0 past the end of its
// context.
inline int64_t tokens_in_block(int64_t context, int64_t block, int64_t block_size) {
  const int64_t left = context - block * block_size;
  return left <= 0 ? 0 : left < block_size ? left : block_size;
}

// Applies the rotary embedding to one head in place: rotates elements i and i + dim / 2.
inline void rotate(float* head, const float* cosines, const float* sines, uint64_t dim) {
  for (uint64_t i = 0; i < dim / 2; ++i) {
    const float low = head[i], high = head[i + dim / 2];
    head[i] = low * cosines[i] - high * sines[i];
    head[i + dim / 2] = high * cosines[i] + low * sines[i];
  }
}
