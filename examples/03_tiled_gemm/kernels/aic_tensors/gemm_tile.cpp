// product = a b for one tile; arguments: the tensors a and b, views into row-major matrices, and
// product, a contiguous tile. All are float32.

#include "pto/abi/kernel.h"
#include "pto/abi/tensor.h"

constexpr uint64_t kTile = 64;

using Tensor = const __gm__ pto_tensor_data*;

static __aicore__ __gm__ float* first_element(Tensor tensor) {
  return reinterpret_cast<__gm__ float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const Tensor a_tile = reinterpret_cast<Tensor>(args[0]);
  const Tensor b_tile = reinterpret_cast<Tensor>(args[1]);
  const __gm__ float* a = first_element(a_tile);
  const __gm__ float* b = first_element(b_tile);
  __gm__ float* product = first_element(reinterpret_cast<Tensor>(args[2]));
  const uint64_t a_pitch = a_tile->raw_shapes[1], b_pitch = b_tile->raw_shapes[1];

  for (uint64_t i = 0; i < kTile; ++i) {
    // one row of the product, which stays in registers or cache while b is read
    float row[kTile];
    for (uint64_t j = 0; j < kTile; ++j) row[j] = 0.0f;
    for (uint64_t k = 0; k < kTile; ++k) {
      const float factor = a[i * a_pitch + k];
      for (uint64_t j = 0; j < kTile; ++j) row[j] += factor * b[k * b_pitch + j];
    }
    for (uint64_t j = 0; j < kTile; ++j) product[i * kTile + j] = row[j];
  }
}
