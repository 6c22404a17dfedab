// The AIV lanes of a mixed task add 1 to the rows 2 to 4, and 5 to 7. With the second scalar, they
// then wait forever.
#include <sched.h>

#include "elements.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const uint32_t begin = get_sub_block_id(args) == 0 ? 2 : 5;
  add_to_rows(tensor(args, 0), begin, begin + 3, 1);
  const volatile bool waits = args[2] != 0;
  while (waits) sched_yield();
}
