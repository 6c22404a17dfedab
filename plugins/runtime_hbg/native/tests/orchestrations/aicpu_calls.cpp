// Orchestration entries that call aicpu_build_graph as published sources do, without the wrapper.
#include "pto/engine/orchestration_entry.hpp"
#include "runtime.h"

#define EXPECT(condition) \
  if (!(condition)) return __LINE__

// Computes (x + 1) * (x + 2) for every x, through the function table.
extern "C" int diamond(Runtime* runtime) {
  EXPECT(runtime->orch_argc == 3);
  EXPECT(runtime->kernel_addrs[0] != 0 && runtime->kernel_addrs[1] != 0);
  EXPECT(runtime->kernel_addrs[2] == 0);
  const AicpuBuildApi& api = runtime->aicpu_build_api;
  const uint64_t in = runtime->orch_args[0];
  const uint64_t out = runtime->orch_args[1];
  const uint64_t bytes = runtime->orch_args[2];
  const uint64_t left = reinterpret_cast<uint64_t>(api.device_malloc(bytes));
  const uint64_t right = reinterpret_cast<uint64_t>(api.device_malloc(bytes));
  EXPECT(left != 0 && right != 0);
  uint64_t first[] = {in, left, 1, bytes / 4};
  uint64_t second[] = {in, right, 2, bytes / 4};
  uint64_t third[] = {left, right, out, bytes / 4};
  const int a = api.add_task(runtime, first, 4, 0, CoreType::AIV, 0);
  api.publish_task(runtime, a);
  const int b = api.add_task(runtime, second, 4, 0, CoreType::AIV, runtime->kernel_addrs[0]);
  const int c = api.add_task(runtime, third, 4, 1, CoreType::AIC, 0);
  api.add_successor_conditional(runtime, a, c);
  api.add_successor_conditional(runtime, b, c);
  api.publish_task(runtime, c);
  api.publish_task(runtime, b);
  return 0;
}

// Computes the same through the C entry points.
extern "C" int diamond_through_c(Runtime* runtime) {
  const uint64_t bytes = runtime->orch_args[2];
  const uint64_t left = reinterpret_cast<uint64_t>(aicpu_runtime_device_malloc(bytes));
  const uint64_t right = reinterpret_cast<uint64_t>(aicpu_runtime_device_malloc(bytes));
  uint64_t first[] = {runtime->orch_args[0], left, 1, bytes / 4};
  uint64_t second[] = {runtime->orch_args[0], right, 2, bytes / 4};
  uint64_t third[] = {left, right, runtime->orch_args[1], bytes / 4};
  const int a = aicpu_runtime_add_task(runtime, first, 4, 0, CoreType::AIV, 0);
  const int b = aicpu_runtime_add_task(runtime, second, 4, 0, CoreType::AIV, 0);
  const int c = aicpu_runtime_add_task(runtime, third, 4, 1, CoreType::AIC, 0);
  aicpu_runtime_add_successor_conditional(runtime, a, c);
  aicpu_runtime_add_successor_conditional(runtime, b, c);
  const int tasks[] = {a, b, c};
  for (const int task : tasks) aicpu_runtime_publish_task(runtime, task);
  return 0;
}

extern "C" int tells_build_mode(Runtime* runtime) {
  return 100 + runtime->build_mode;
}

extern "C" void forgets_to_publish(Runtime* runtime) {
  for (int i = 0; i < 3; ++i) {
    runtime->aicpu_build_api.add_task(runtime, nullptr, 0, 0, CoreType::AIV, 0);
  }
  runtime->aicpu_build_api.publish_task(runtime, 1);
}

// For tests/native/orchestrations.cmake: the entry of each library, and a function of its type for
// each entry above.
extern "C" __attribute__((visibility("hidden"))) int selected_entry(Runtime* runtime);

#define ENTRY(name)                                       \
  extern "C" int call_##name(Runtime* runtime) {          \
    return pto_orchestration::call_entry(&name, runtime); \
  }
