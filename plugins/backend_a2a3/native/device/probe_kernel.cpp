// The kernel of the check of a card. abi/probe.h states its arguments. For the chip it is compiled
// with the recipe of kernels; for threads that play cores it is a library.
#include "pto/abi/kernel.h"

extern "C" __attribute__((visibility("default"))) __aicore__ void kernel_entry(
    __gm__ int64_t* args) {
  const __gm__ uint32_t* in = reinterpret_cast<const __gm__ uint32_t*>(args[0]);
  __gm__ uint32_t* out = reinterpret_cast<__gm__ uint32_t*>(args[1]);
  for (int64_t i = 0; i < args[2]; ++i) out[i] = 3 * in[i] + 1;
}
