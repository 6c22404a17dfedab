// out = x y for square row-major matrices; arguments: x, y, out, size (rows of each).

#include <cstdint>

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* x = reinterpret_cast<const float*>(args[0]);
  const float* y = reinterpret_cast<const float*>(args[1]);
  float* out = reinterpret_cast<float*>(args[2]);
  const int64_t size = args[3];
  for (int64_t i = 0; i < size; ++i) {
    float* row = out + i * size;
    for (int64_t j = 0; j < size; ++j) row[j] = 0.0f;
    for (int64_t k = 0; k < size; ++k) {
      const float factor = x[i * size + k];
      for (int64_t j = 0; j < size; ++j) row[j] += factor * y[k * size + j];
    }
  }
}
