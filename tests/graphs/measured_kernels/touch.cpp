// Touches bytes as its arguments say: a buffer, then (begin, end, is_write) for each range.
// The first such number is argument SCALARS.
// With -DHAS_TENSORS the buffer is the tensor's description, whose first word is the address.
#include <cstdint>

#ifndef RANGES
#define RANGES 2
#endif
#ifndef SCALARS
#define SCALARS 1
#endif

extern "C" void kernel_entry(int64_t* args) {
#ifdef HAS_TENSORS
  auto* data = *reinterpret_cast<volatile uint8_t**>(args[0]);
#else
  auto* data = reinterpret_cast<volatile uint8_t*>(args[0]);
#endif
  for (int range = 0; range < RANGES; ++range) {
    const int64_t* words = args + SCALARS + 3 * range;
    for (int64_t at = words[0]; at < words[1]; ++at) {
      if (words[2] != 0) {
        data[at] = 1;
      } else {
        static_cast<void>(data[at]);
      }
    }
  }
}
