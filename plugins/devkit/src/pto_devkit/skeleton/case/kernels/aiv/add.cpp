// out[i] = x[i] + y[i]; arguments: x, y, out, count.

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
  const int64_t count = args[3];
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] + y[i];
}
