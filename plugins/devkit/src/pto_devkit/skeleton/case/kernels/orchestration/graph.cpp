// Runs on the host: copies the tensors to the device, then submits two tasks, scale -> add.

#include <cstdint>

#include "runtime.h"

namespace {

enum Function { kScale = 0, kAdd = 1 };

uint64_t address(void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace

// Returns 0. Any other value ends the run with an error. The framework frees the buffers.
extern "C" int build_graph(Runtime* runtime, uint64_t* args, int arg_count) {
  if (arg_count != 5) return -1;
  void* host_a = reinterpret_cast<void*>(args[0]);
  void* host_b = reinterpret_cast<void*>(args[1]);
  void* host_c = reinterpret_cast<void*>(args[2]);
  const uint64_t scale = args[3];  // a bit pattern, passed on unchanged
  const uint64_t count = args[4];
  const size_t bytes = count * sizeof(float);

  void* a = runtime->host_api.device_malloc(bytes);
  void* b = runtime->host_api.device_malloc(bytes);
  void* c = runtime->host_api.device_malloc(bytes);
  void* scaled = runtime->host_api.device_malloc(bytes);
  if (a == nullptr || b == nullptr || c == nullptr || scaled == nullptr) return -1;
  if (runtime->host_api.copy_to_device(a, host_a, bytes) != 0) return -1;
  if (runtime->host_api.copy_to_device(b, host_b, bytes) != 0) return -1;
  runtime->record_tensor_pair(host_c, c, bytes);  // copied back at the end

  uint64_t scale_args[] = {address(a), scale, address(scaled), count};
  uint64_t add_args[] = {address(scaled), address(b), address(c), count};
  const int first = runtime->add_task(scale_args, 4, kScale, CoreType::AIV);
  const int second = runtime->add_task(add_args, 4, kAdd, CoreType::AIV);
  runtime->add_successor(first, second);
  return 0;
}
