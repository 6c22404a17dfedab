// c += product for one tile; arguments: product, c, row pitch of c in elements.

#include <cstdint>

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

constexpr int64_t kTile = 64;

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* product = reinterpret_cast<const float*>(args[0]);
  float* c = reinterpret_cast<float*>(args[1]);
  const int64_t c_pitch = args[2];
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t j = 0; j < kTile; ++j) c[i * c_pitch + j] += product[i * kTile + j];
  }
}
