#include <stdint.h>

extern "C" __attribute__((visibility("default"))) void kernel_entry(int64_t* args) {
  args[0] *= 2;
}
