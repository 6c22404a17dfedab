// Runs on the host: moves the tensors, then builds the diamond add -> (+1, +2) -> multiply.

#include <cstdint>
#include <cstring>

#include "runtime.h"

namespace {

enum Function { kAdd = 0, kAddScalar = 1, kMultiply = 2 };

uint64_t address(void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

uint64_t bits(float value) {
  uint32_t pattern;
  std::memcpy(&pattern, &value, sizeof(pattern));
  return pattern;
}

}  // namespace

extern "C" int build_vector_graph(Runtime* runtime, uint64_t* args, int arg_count) {
  if (arg_count != 4) return -1;
  void* host_a = reinterpret_cast<void*>(args[0]);
  void* host_b = reinterpret_cast<void*>(args[1]);
  void* host_f = reinterpret_cast<void*>(args[2]);
  const uint64_t count = args[3];
  const size_t bytes = count * sizeof(float);

  // a, b, f and the intermediates c, d, e; the framework frees them after the run.
  void* buffers[6];
  for (void*& buffer : buffers) {
    buffer = runtime->host_api.device_malloc(bytes);
    if (buffer == nullptr) return -1;
  }
  const uint64_t a = address(buffers[0]), b = address(buffers[1]), f = address(buffers[2]);
  const uint64_t c = address(buffers[3]), d = address(buffers[4]), e = address(buffers[5]);
  if (runtime->host_api.copy_to_device(buffers[0], host_a, bytes) != 0) return -1;
  if (runtime->host_api.copy_to_device(buffers[1], host_b, bytes) != 0) return -1;
  runtime->record_tensor_pair(host_f, buffers[2], bytes);

  uint64_t add[] = {a, b, c, count};
  uint64_t add_one[] = {c, bits(1.0f), d, count};
  uint64_t add_two[] = {c, bits(2.0f), e, count};
  uint64_t multiply[] = {d, e, f, count};
  const int task_add = runtime->add_task(add, 4, kAdd, CoreType::AIV);
  const int task_one = runtime->add_task(add_one, 4, kAddScalar, CoreType::AIV);
  const int task_two = runtime->add_task(add_two, 4, kAddScalar, CoreType::AIV);
  const int task_multiply = runtime->add_task(multiply, 4, kMultiply, CoreType::AIV);

  runtime->add_successor(task_add, task_one);
  runtime->add_successor(task_add, task_two);
  runtime->add_successor(task_one, task_multiply);
  runtime->add_successor(task_two, task_multiply);
  return 0;
}
