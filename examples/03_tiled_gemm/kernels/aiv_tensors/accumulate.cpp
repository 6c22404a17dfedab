// c += product for one tile; arguments: the tensors product, a contiguous tile, and c, a view into
// a row-major matrix. Both are float32.

#include "pto/abi/kernel.h"
#include "pto/abi/tensor.h"

constexpr uint64_t kTile = 64;

using Tensor = const __gm__ pto_tensor_data*;

static __aicore__ __gm__ float* first_element(Tensor tensor) {
  return reinterpret_cast<__gm__ float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const __gm__ float* product = first_element(reinterpret_cast<Tensor>(args[0]));
  const Tensor c_tile = reinterpret_cast<Tensor>(args[1]);
  __gm__ float* c = first_element(c_tile);
  const uint64_t c_pitch = c_tile->raw_shapes[1];
  for (uint64_t i = 0; i < kTile; ++i) {
    for (uint64_t j = 0; j < kTile; ++j) c[i * c_pitch + j] += product[i * kTile + j];
  }
}
