// The vector half of a block: y = max(product + bias, 0) for the block's tile.
//
// Arguments: the tensors products [blocks][32][32], bias [32], y [blocks * 32][32], all float32,
// and the pipe from the cube half; block_dim, block_id.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const Tensor result = tensor(args[2]);
  const uint64_t block = static_cast<uint64_t>(args[5]);
  const __gm__ float* product = first_element(args[0]) + block * kTile * kTile;
  const __gm__ float* bias = first_element(args[1]);
  __gm__ float* y = first_element(args[2]) + block * kTile * pitch(result);

  for (uint64_t i = 0; i < kTile; ++i, y += pitch(result), product += kTile) {
    for (uint64_t j = 0; j < kTile; ++j) {
      const float sum = product[j] + bias[j];
      y[j] = sum < 0.0f ? 0.0f : sum;  // NaN stays NaN
    }
  }
}
