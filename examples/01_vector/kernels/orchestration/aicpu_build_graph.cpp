// Runs on an AICPU thread while the schedulers run: builds the diamond add -> (+1, +2) -> multiply.
// The tensors are in device memory already; a published task may start at once.

#include <cstdint>
#include <cstring>

#include "runtime.h"

namespace {

enum Function { kAdd = 0, kAddScalar = 1, kMultiply = 2 };

uint64_t bits(float value) {
  uint32_t pattern;
  std::memcpy(&pattern, &value, sizeof(pattern));
  return pattern;
}

}  // namespace

extern "C" int build_vector_graph(Runtime* runtime) {
  if (runtime->orch_argc != 4) return -1;
  const auto& api = runtime->aicpu_build_api;
  const uint64_t a = runtime->orch_args[0];
  const uint64_t b = runtime->orch_args[1];
  const uint64_t f = runtime->orch_args[2];
  const uint64_t count = runtime->orch_args[3];

  uint64_t intermediates[3];
  for (uint64_t& buffer : intermediates) {
    void* memory = api.device_malloc(count * sizeof(float));
    if (memory == nullptr) return -1;
    buffer = reinterpret_cast<uint64_t>(memory);
  }
  const uint64_t c = intermediates[0], d = intermediates[1], e = intermediates[2];

  uint64_t add[] = {a, b, c, count};
  uint64_t add_one[] = {c, bits(1.0f), d, count};
  uint64_t add_two[] = {c, bits(2.0f), e, count};
  uint64_t multiply[] = {d, e, f, count};

  const int task_add = api.add_task(runtime, add, 4, kAdd, CoreType::AIV, 0);
  api.publish_task(runtime, task_add);

  const int task_one = api.add_task(runtime, add_one, 4, kAddScalar, CoreType::AIV, 0);
  api.add_successor_conditional(runtime, task_add, task_one);
  api.publish_task(runtime, task_one);

  const int task_two = api.add_task(runtime, add_two, 4, kAddScalar, CoreType::AIV, 0);
  api.add_successor_conditional(runtime, task_add, task_two);
  api.publish_task(runtime, task_two);

  const int task_multiply = api.add_task(runtime, multiply, 4, kMultiply, CoreType::AIV, 0);
  api.add_successor_conditional(runtime, task_one, task_multiply);
  api.add_successor_conditional(runtime, task_two, task_multiply);
  api.publish_task(runtime, task_multiply);
  return 0;
}
