// Orchestration entries that call host_build_graph as published sources do, without the wrapper.
#include <stdexcept>

#include "pto/engine/orchestration_entry.hpp"
#include "runtime.h"

#ifndef __gm__
#define __gm__
#endif

namespace {

int make_diamond(Runtime* runtime, uint64_t* args) {
  const size_t bytes = static_cast<size_t>(args[2]);
  void* in = runtime->host_api.device_malloc(bytes);
  void* left = runtime->host_api.device_malloc(bytes);
  void* right = runtime->host_api.device_malloc(bytes);
  void* out = runtime->host_api.device_malloc(bytes);
  if (in == nullptr || left == nullptr || right == nullptr || out == nullptr) return -1;
  if (runtime->host_api.copy_to_device(in, reinterpret_cast<void*>(args[0]), bytes) != 0) return -1;
  const auto address = [](void* memory) { return reinterpret_cast<uint64_t>(memory); };
  const uint64_t count = bytes / sizeof(float);
  uint64_t first[] = {address(in), address(left), 1, count};
  uint64_t second[] = {address(in), address(right), 2, count};
  uint64_t third[] = {address(left), address(right), address(out), count};
  const int a = runtime->add_task(first, 4, 0, CoreType::AIV);
  const int b = add_task(runtime, second, 4, 0, CoreType::AIV);
  const int c = runtime->add_task(third, 4, 1);
  runtime->add_successor(a, c);
  add_successor(runtime, b, c);
  runtime->record_tensor_pair(reinterpret_cast<void*>(args[1]), out, bytes);
  return 0;
}

}  // namespace

// Computes (x + 1) * (x + 2) for every x.
extern "C" int diamond(Runtime* runtime, uint64_t* args, int arg_count) {
  return arg_count == 3 ? make_diamond(runtime, args) : -1;
}

// The same graph, built by a C++ function that returns nothing.
void diamond_void(Runtime* runtime, uint64_t* args, int) {
  make_diamond(runtime, args);
}

// Reads the graph through every query. Returns the line number of the first wrong result; 0 means
// success.
#define EXPECT(condition) \
  if (!(condition)) return __LINE__
extern "C" int query_graph(Runtime* runtime, uint64_t* args, int arg_count) {
  EXPECT(diamond(runtime, args, arg_count) == 0);
  EXPECT(runtime->get_task_count() == 3);
  Task* sum = runtime->get_task(2);
  EXPECT(sum != nullptr && sum->task_id == 2 && sum->func_id == 1 && sum->num_args == 4);
  EXPECT(sum->fanin.load() == 2 && sum->fanout_count == 0 && sum->core_type == CoreType::AIC);
  EXPECT(sum->function_bin_addr == runtime->get_function_bin_addr(1));
  EXPECT(sum->start_time == 0 && sum->end_time == 0);
  Task* left = runtime->get_task(0);
  EXPECT(left->fanout_count == 1 && left->fanout[0] == 2 && left->core_type == CoreType::AIV);
  EXPECT(left->args[2] == 1 && sum->args[0] == left->args[1]);
  EXPECT(runtime->get_task(3) == nullptr && runtime->get_task(-1) == nullptr);
  int ready[3] = {-1, -1, -1};
  EXPECT(runtime->get_initial_ready_tasks(ready) == 2 && ready[0] == 0 && ready[1] == 1);
  EXPECT(runtime->get_initial_ready_tasks(nullptr) == 2);
  for (int i = 0; i < 20; ++i) runtime->add_successor(0, 2);
  EXPECT(runtime->get_task(0)->fanout_count == 21 && runtime->get_task(0)->fanout[20] == 2);
  EXPECT(runtime->get_function_bin_addr(77) == 0);
  runtime->set_function_bin_addr(77, runtime->get_function_bin_addr(0));
  EXPECT(runtime->get_function_bin_addr(77) != 0);
  runtime->set_pto2_gm_sm_ptr(args);
  runtime->print_runtime();
  float value = 0;
  void* buffer = runtime->host_api.device_malloc(sizeof value);
  const float written = 4.5f;
  EXPECT(runtime->host_api.copy_to_device(buffer, &written, sizeof written) == 0);
  EXPECT(runtime->host_api.copy_from_device(&value, buffer, sizeof value) == 0 && value == 4.5f);
  runtime->host_api.device_free(buffer);
  return 0;
}

extern "C" int returns_seven(Runtime*, uint64_t*, int) {
  return 7;
}

extern "C" int throws(Runtime*, uint64_t*, int) {
  throw std::runtime_error("no such layer");
}

// Ignores the error of a call, as published sources do.
extern "C" int ignores_errors(Runtime* runtime, uint64_t*, int) {
  runtime->add_task(nullptr, 0, 55, CoreType::AIV);
  runtime->add_successor(1, 1);
  return 0;
}

extern "C" int negative_arguments(Runtime* runtime, uint64_t* args, int) {
  runtime->add_task(args, -3, 0);
  return 0;
}

extern "C" int null_arguments(Runtime* runtime, uint64_t*, int) {
  runtime->add_task(nullptr, 2, 0);
  return 0;
}

extern "C" int wrong_core_type(Runtime* runtime, uint64_t* args, int) {
  runtime->add_task(args, 1, 0, static_cast<CoreType>(-1));
  return 0;
}

extern "C" int null_tensor_pair(Runtime* runtime, uint64_t*, int) {
  runtime->record_tensor_pair(nullptr, runtime->host_api.device_malloc(8), 8);
  return 0;
}

extern "C" int no_device_memory(Runtime* runtime, uint64_t*, int) {
  return runtime->host_api.device_malloc(size_t{1} << 60) == nullptr ? 0 : -1;
}

extern "C" int frees_twice(Runtime* runtime, uint64_t*, int) {
  void* buffer = runtime->host_api.device_malloc(8);
  runtime->host_api.device_free(buffer);
  runtime->host_api.device_free(buffer);
  return 0;
}

extern "C" int copies_too_much(Runtime* runtime, uint64_t* args, int) {
  void* buffer = runtime->host_api.device_malloc(8);
  return runtime->host_api.copy_to_device(buffer, args, 64) == 0 ? 1 : 0;
}

// For tests/native/orchestrations.cmake: the entry of each library, and a function of its type for
// each entry above.
extern "C" __attribute__((visibility("hidden"))) int selected_entry(Runtime* runtime,
                                                                    uint64_t* args, int arg_count);

#define ENTRY(name)                                                             \
  extern "C" int call_##name(Runtime* runtime, uint64_t* args, int arg_count) { \
    return pto_orchestration::call_entry(&name, runtime, args, arg_count);      \
  }
