// c += product for one tile; arguments: product, c, row pitch of c in elements.

#include "pto/abi/kernel.h"

constexpr int64_t kTile = 64;

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const __gm__ float* product = reinterpret_cast<const __gm__ float*>(args[0]);
  __gm__ float* c = reinterpret_cast<__gm__ float*>(args[1]);
  const int64_t c_pitch = args[2];
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t j = 0; j < kTile; ++j) c[i * c_pitch + j] += product[i * kTile + j];
  }
}
