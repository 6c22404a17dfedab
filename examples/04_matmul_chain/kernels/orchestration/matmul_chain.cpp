// Runs on the host: moves the matrices, then builds log_sqrt -> (matmul, matmul) -> add_exp.

#include <cstdint>
#include <initializer_list>

#include "runtime.h"

namespace {

enum Function { kLogSqrt = 0, kMatmul = 1, kAddExp = 2 };

// Returns a device buffer of `bytes`, filled from `host` unless that is null; 0 if memory is
// exhausted.
uint64_t device_buffer(Runtime* runtime, size_t bytes, const void* host) {
  void* device = runtime->host_api.device_malloc(bytes);
  if (device == nullptr) return 0;
  if (host != nullptr && runtime->host_api.copy_to_device(device, host, bytes) != 0) return 0;
  return reinterpret_cast<uint64_t>(device);
}

}  // namespace

extern "C" int build_matmul_chain(Runtime* runtime, uint64_t* args, int arg_count) {
  if (arg_count != 5) return -1;
  const uint64_t size = args[4];
  const uint64_t count = size * size;
  const size_t bytes = count * sizeof(float);

  const uint64_t x = device_buffer(runtime, bytes, reinterpret_cast<const void*>(args[0]));
  const uint64_t w = device_buffer(runtime, bytes, reinterpret_cast<const void*>(args[1]));
  const uint64_t v = device_buffer(runtime, bytes, reinterpret_cast<const void*>(args[2]));
  const uint64_t f = device_buffer(runtime, bytes, nullptr);
  const uint64_t u = device_buffer(runtime, bytes, nullptr);
  const uint64_t uw = device_buffer(runtime, bytes, nullptr);
  const uint64_t uv = device_buffer(runtime, bytes, nullptr);
  for (uint64_t buffer : {x, w, v, f, u, uw, uv}) {
    if (buffer == 0) return -1;
  }
  runtime->record_tensor_pair(reinterpret_cast<void*>(args[3]), reinterpret_cast<void*>(f), bytes);

  uint64_t log_sqrt[] = {x, u, count};
  uint64_t times_w[] = {u, w, uw, size};
  uint64_t times_v[] = {u, v, uv, size};
  uint64_t add_exp[] = {uw, uv, f, count};
  const int first = runtime->add_task(log_sqrt, 3, kLogSqrt, CoreType::AIV);
  const int left = runtime->add_task(times_w, 4, kMatmul, CoreType::AIC);
  const int right = runtime->add_task(times_v, 4, kMatmul, CoreType::AIC);
  const int last = runtime->add_task(add_exp, 4, kAddExp, CoreType::AIV);

  runtime->add_successor(first, left);
  runtime->add_successor(first, right);
  runtime->add_successor(left, last);
  runtime->add_successor(right, last);
  return 0;
}
