// A kernel that prints more texts than the ring of its core has places, and may fail.
#include "pto/kernel/print.hpp"

extern "C" __attribute__((visibility("default"))) void kernel_entry(int64_t* args) {
  for (int i = 0; i < 100; ++i) pto_printf("text %d", i);
  if (args[0] == 1) *reinterpret_cast<volatile int*>(args[1]) = 1;  // crashes
  PTO_ASSERT(args[0] != 2, "in task %d", 0);
}
