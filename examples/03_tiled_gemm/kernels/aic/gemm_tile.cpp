// product = a b for one tile; arguments: a, row pitch of a, b, row pitch of b, product.
// Pitches are in elements; product is a contiguous tile.

#include "pto/abi/kernel.h"

constexpr int64_t kTile = 64;

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const __gm__ float* a = reinterpret_cast<const __gm__ float*>(args[0]);
  const int64_t a_pitch = args[1];
  const __gm__ float* b = reinterpret_cast<const __gm__ float*>(args[2]);
  const int64_t b_pitch = args[3];
  __gm__ float* product = reinterpret_cast<__gm__ float*>(args[4]);

  for (int64_t i = 0; i < kTile; ++i) {
    // one row of the product, which stays in registers or cache while b is read
    float row[kTile];
    for (int64_t j = 0; j < kTile; ++j) row[j] = 0.0f;
    for (int64_t k = 0; k < kTile; ++k) {
      const float factor = a[i * a_pitch + k];
      for (int64_t j = 0; j < kTile; ++j) row[j] += factor * b[k * b_pitch + j];
    }
    for (int64_t j = 0; j < kTile; ++j) product[i * kTile + j] = row[j];
  }
}
