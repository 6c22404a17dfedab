// Runs on an AICPU thread while the schedulers run: submits two tasks, scale -> add. The tensors
// are already in device memory. A published task may start at once.

#include <cstdint>

#include "runtime.h"

namespace {

enum Function { kScale = 0, kAdd = 1 };

}  // namespace

// Returns 0. Any other value ends the run with an error. The framework frees the buffers.
extern "C" int build_graph(Runtime* runtime) {
  if (runtime->orch_argc != 5) return -1;
  const auto& api = runtime->aicpu_build_api;
  const uint64_t a = runtime->orch_args[0];
  const uint64_t b = runtime->orch_args[1];
  const uint64_t c = runtime->orch_args[2];
  const uint64_t scale = runtime->orch_args[3];  // a bit pattern, passed on unchanged
  const uint64_t count = runtime->orch_args[4];

  void* memory = api.device_malloc(count * sizeof(float));
  if (memory == nullptr) return -1;
  const uint64_t scaled = reinterpret_cast<uint64_t>(memory);

  uint64_t scale_args[] = {a, scale, scaled, count};
  const int first = api.add_task(runtime, scale_args, 4, kScale, CoreType::AIV, 0);
  api.publish_task(runtime, first);

  uint64_t add_args[] = {scaled, b, c, count};
  const int second = api.add_task(runtime, add_args, 4, kAdd, CoreType::AIV, 0);
  api.add_successor_conditional(runtime, first, second);
  api.publish_task(runtime, second);
  return 0;
}
