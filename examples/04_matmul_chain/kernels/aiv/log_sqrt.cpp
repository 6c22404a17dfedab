// out[i] = sqrt(log(x[i])), x[i] >= 1; arguments: x, out, count.

#include <cmath>
#include <cstdint>

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* x = reinterpret_cast<const float*>(args[0]);
  float* out = reinterpret_cast<float*>(args[1]);
  const int64_t count = args[2];
  for (int64_t i = 0; i < count; ++i) out[i] = std::sqrt(std::log(x[i]));
}
