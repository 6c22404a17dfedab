// c += product for one tile; arguments: the tensors product, a contiguous tile, and c, a view into
// a row-major matrix. Both are float32.

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
  const float* product = first_element(reinterpret_cast<const TensorData*>(args[0]));
  const TensorData* c_tile = reinterpret_cast<const TensorData*>(args[1]);
  float* c = first_element(c_tile);
  const uint64_t c_pitch = c_tile->raw_shapes[1];
  for (uint64_t i = 0; i < kTile; ++i) {
    for (uint64_t j = 0; j < kTile; ++j) c[i * c_pitch + j] += product[i * kTile + j];
  }
}
