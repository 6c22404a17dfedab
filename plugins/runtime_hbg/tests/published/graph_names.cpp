// A published host_build_graph source: it logs, uses the limits for arrays and reads tasks back.
#include "runtime.h"

extern "C" {

int build(Runtime* runtime, uint64_t* args, int arg_count) {
  if (arg_count != 3) {
    LOG_ERROR("build: expected 3 arguments, got %d", arg_count);
    return -1;
  }
  float* host_in = reinterpret_cast<float*>(args[0]);
  float* host_out = reinterpret_cast<float*>(args[1]);
  size_t size = static_cast<size_t>(args[2]) * sizeof(float);
  char title[32];
  memset(title, 0, sizeof(title));
  snprintf(title, sizeof(title), "%zu bytes", size);
  LOG_INFO("build: %s", title);

  void* in = runtime->host_api.device_malloc(size);
  void* middle = runtime->host_api.device_malloc(size);
  void* out = runtime->host_api.device_malloc(size);
  if (!in || !middle || !out) {
    LOG_ERROR("build: no device memory");
    return -1;
  }
  runtime->host_api.copy_to_device(in, host_in, size);
  runtime->record_tensor_pair(host_out, out, size);
  if (runtime->get_tensor_pair_count() != 1 || RUNTIME_MAX_TENSOR_PAIRS < 1) return -2;

  uint64_t first_args[RUNTIME_MAX_ARGS] = {(uint64_t)in, (uint64_t)middle, args[2]};
  uint64_t second_args[RUNTIME_MAX_ARGS] = {(uint64_t)middle, (uint64_t)out, args[2]};
  int first = runtime->add_task(first_args, 3, 0, CoreType::AIV);
  int second = runtime->add_task(second_args, 3, 0, CoreType::AIV);
  runtime->add_successor(first, second);

  int ready[RUNTIME_MAX_TASKS];
  if (runtime->get_initial_ready_tasks(ready) != 1 || ready[0] != first) return -3;
  Task& task = runtime->tasks[second];
  if (task.task_id != second || task.args[1] != (uint64_t)out || task.fanin != 1) return -4;
  Task* other = &runtime->tasks[first];
  if (other->fanout_count > RUNTIME_MAX_FANOUT || other->fanout[0] != second) return -5;
  if ((runtime->tasks + first)->num_args != 3 || runtime->tasks[2].task_id != -1) return -6;
  for (int i = 0; i < runtime->get_task_count(); i++) {
    printf("task %d: %d arguments\n", i, runtime->tasks[i].num_args);
    LOG_DEBUG("task %d has %d successors", i, runtime->tasks[i].fanout_count);
  }
  if (runtime->get_task_count() > 1) LOG_WARN("build: two tasks");
  return 0;
}
}
