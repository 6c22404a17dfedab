// A kernel without a library. Arguments: in, out, constant, count.
#include <stdint.h>

extern "C" void kernel_entry(int64_t* args) {
  const float* in = reinterpret_cast<const float*>(args[0]);
  float* out = reinterpret_cast<float*>(args[1]);
  for (int64_t i = 0; i < args[3]; ++i) out[i] = in[i] + static_cast<float>(args[2]);
}
