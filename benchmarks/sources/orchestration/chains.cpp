// `tasks` tasks of kernel 0 in `chains` chains; with chains == 0 all are independent. args: tasks,
// chains, and the kernel's only scalar argument.
#include "runtime.h"

extern "C" int build_chains(Runtime* runtime, uint64_t* args, int arg_count) {
  if (arg_count != 3) return 1;
  const int tasks = static_cast<int>(args[0]);
  const int chains = static_cast<int>(args[1]);
  for (int i = 0; i < tasks; ++i) {
    const int task = runtime->add_task(&args[2], 1, 0, CoreType::AIV);
    if (chains > 0 && i >= chains) runtime->add_successor(task - chains, task);
  }
  return 0;
}
