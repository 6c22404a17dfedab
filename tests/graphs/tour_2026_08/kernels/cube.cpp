// The AIC lane of a mixed task adds 1 to the rows 0 and 1. With the first scalar, it crashes.
#include "elements.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  add_to_rows(tensor(args, 0), 0, 2, 1);
  if (args[1] != 0) *reinterpret_cast<volatile float*>(uint64_t{64}) = 1;
}
