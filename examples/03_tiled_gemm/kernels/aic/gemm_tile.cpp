// product = a b for one tile; arguments: a, row pitch of a, b, row pitch of b, product.
// Pitches are in elements; product is a contiguous tile.

#include <cstdint>

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

constexpr int64_t kTile = 64;

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* a = reinterpret_cast<const float*>(args[0]);
  const int64_t a_pitch = args[1];
  const float* b = reinterpret_cast<const float*>(args[2]);
  const int64_t b_pitch = args[3];
  float* product = reinterpret_cast<float*>(args[4]);

  for (int64_t i = 0; i < kTile; ++i) {
    // one row of the product, which stays in registers or cache while b is read
    float row[kTile] = {};
    for (int64_t k = 0; k < kTile; ++k) {
      const float factor = a[i * a_pitch + k];
      for (int64_t j = 0; j < kTile; ++j) row[j] += factor * b[k * b_pitch + j];
    }
    for (int64_t j = 0; j < kTile; ++j) product[i * kTile + j] = row[j];
  }
}
