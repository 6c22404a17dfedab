// A compute-bound kernel: args[0] iterations of an integer recurrence that no compiler can shorten.
#include <cstdint>

extern "C" void kernel_entry(int64_t* args) {
  uint64_t x = 88172645463325252u;
  for (int64_t i = 0; i < args[0]; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  asm volatile("" : : "r"(x));
}
