// out[i] = x[i] * y[i]; arguments: x, y, out, count.

#include "pto/abi/kernel.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const __gm__ float* x = reinterpret_cast<const __gm__ float*>(args[0]);
  const __gm__ float* y = reinterpret_cast<const __gm__ float*>(args[1]);
  __gm__ float* out = reinterpret_cast<__gm__ float*>(args[2]);
  const int64_t count = args[3];
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * y[i];
}
