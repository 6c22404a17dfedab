// Accessors for the tensor arguments of a kernel, and arithmetic of a core, which has no standard
// library.
#pragma once

#include "pto/abi/kernel.h"
#include "pto/abi/tensor.h"

using Tensor = const __gm__ pto_tensor_data*;

static inline __aicore__ Tensor tensor(int64_t argument) {
  return reinterpret_cast<Tensor>(argument);
}

// Returns the first element of a view.
template <typename T>
static inline __aicore__ __gm__ T* first_element(int64_t argument) {
  const Tensor view = tensor(argument);
  return reinterpret_cast<__gm__ T*>(view->buffer.addr) + view->start_offset;
}

// Returns the number of elements from one index of a row-major view's first dimension to the next.
static inline __aicore__ uint64_t pitch(Tensor view) {
  uint64_t elements = 1;
  for (uint32_t i = 1; i < view->ndims; ++i) elements *= view->raw_shapes[i];
  return elements;
}

static inline __aicore__ float from_bits(uint32_t bits) {
  return pto_float_argument(bits);
}

static inline __aicore__ float from_bfloat16(uint16_t bits) {
  return from_bits(static_cast<uint32_t>(bits) << 16);
}

static inline __aicore__ float larger(float left, float right) {
  return left > right ? left : right;
}

// Returns e to the power of x, for x <= 0, with a relative error of about 1e-7.
static inline __aicore__ float exponential(float x) {
  if (x < -87.0f) return 0.0f;  // the result would be denormal
  // x = n log(2) + r with |r| <= log(2) / 2. The constant is split, so that n times its first part
  // is exact.
  const int32_t n = static_cast<int32_t>(x * 1.44269504f - 0.5f);
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float sum = 1.9875691500e-4f;
  sum = sum * r + 1.3981999507e-3f;
  sum = sum * r + 8.3334519073e-3f;
  sum = sum * r + 4.1665795894e-2f;
  sum = sum * r + 1.6666665459e-1f;
  sum = sum * r + 5.0000001201e-1f;
  const float power = sum * r * r + r + 1.0f;
  return power * from_bits(static_cast<uint32_t>(n + 127) << 23);
}

// Returns the number of tokens of a sequence in its block number `block`; 0 past the end of its
// context.
static inline __aicore__ int64_t tokens_in_block(int64_t context, int64_t block,
                                                 int64_t block_size) {
  const int64_t left = context - block * block_size;
  return left <= 0 ? 0 : left < block_size ? left : block_size;
}
