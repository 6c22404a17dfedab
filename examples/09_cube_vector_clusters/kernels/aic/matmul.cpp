// The cube half of a block: product = x w for the block's tile of rows and one tile of columns.
//
// Arguments: the tensors x [blocks * 32][depth], w [depth][32], products [blocks][32][32], all
// float32, and the pipe to the vector half; block_dim, block_id.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const Tensor rows = tensor(args[0]), columns = tensor(args[1]);
  const uint64_t block = static_cast<uint64_t>(args[5]), depth = rows->shapes[1];
  const __gm__ float* x = first_element(args[0]) + block * kTile * pitch(rows);
  const __gm__ float* w = first_element(args[1]);
  __gm__ float* product = first_element(args[2]) + block * kTile * kTile;

  for (uint64_t i = 0; i < kTile; ++i, x += pitch(rows), product += kTile) {
    for (uint64_t j = 0; j < kTile; ++j) product[j] = 0.0f;
    for (uint64_t k = 0; k < depth; ++k) {
      for (uint64_t j = 0; j < kTile; ++j) product[j] += x[k] * w[k * pitch(columns) + j];
    }
  }
}
