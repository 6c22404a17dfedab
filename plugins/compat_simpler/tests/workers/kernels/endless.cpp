// A kernel that does not return.
#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  volatile int64_t is_endless = 1;
  while (is_endless) {
  }
  args[0] = 0;
}
