// target[i] = 2 * source[i] + 1, computed by two tasks with a buffer between them.
#include "runtime.h"

extern "C" int build(Runtime* runtime) {
  const uint64_t source = runtime->orch_args[0];
  const uint64_t target = runtime->orch_args[1];
  const uint64_t count = runtime->orch_args[2];
  const auto between = reinterpret_cast<uint64_t>(runtime->device_malloc(count * sizeof(float)));
  const uint64_t first[] = {source, between, count};
  const uint64_t second[] = {between, target, count};
  const int64_t twice = runtime->add_task(first, 3, 0, CoreType::AIV);
  const int64_t plus_one = runtime->add_task(second, 3, 1, CoreType::AIV);
  runtime->add_successor(twice, plus_one);
  return 0;
}
