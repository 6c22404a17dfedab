// product = a b for one tile; arguments: the tensors a and b, views into row-major matrices, and
// product, a contiguous tile. All are float32.

#include <cstdint>

#include "tensor.h"

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

constexpr uint64_t kTile = 64;

static float* first_element(const TensorData* tensor) {
  return reinterpret_cast<float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const TensorData* a_tile = reinterpret_cast<const TensorData*>(args[0]);
  const TensorData* b_tile = reinterpret_cast<const TensorData*>(args[1]);
  const float* a = first_element(a_tile);
  const float* b = first_element(b_tile);
  float* product = first_element(reinterpret_cast<const TensorData*>(args[2]));
  const uint64_t a_pitch = a_tile->raw_shapes[1], b_pitch = b_tile->raw_shapes[1];

  for (uint64_t i = 0; i < kTile; ++i) {
    // one row of the product, which stays in registers or cache while b is read
    float row[kTile] = {};
    for (uint64_t k = 0; k < kTile; ++k) {
      const float factor = a[i * a_pitch + k];
      for (uint64_t j = 0; j < kTile; ++j) row[j] += factor * b[k * b_pitch + j];
    }
    for (uint64_t j = 0; j < kTile; ++j) product[i * kTile + j] = row[j];
  }
}
