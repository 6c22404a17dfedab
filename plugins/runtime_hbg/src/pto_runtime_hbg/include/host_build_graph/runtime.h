// The interface of host_build_graph orchestrations.
//
//   extern "C" int build(Runtime* runtime, uint64_t* args, int arg_count);   // 0 = success
//
// runs on the host, with host pointers and scalars in `args`, and builds the whole graph. The tasks
// run after it has returned 0. The first error of any call ends the run with that error, whatever
// the orchestration returns. Later calls do nothing and return -1, 0 or nullptr.
//
// An edge that is added twice counts twice at both tasks and is harmless. Limits: 64 arguments per
// task, function ids up to 4095, 134,217,728 tasks. The number of edges and tensor pairs is limited
// only by memory.
//
// The names are global, so that sources may declare them themselves (`class Runtime;`) before or
// after this header. The other variant uses the same names. They do not conflict: the include path
// of a translation unit contains the folder of only one variant, and an orchestration library hides
// all symbols except its entry.
#ifndef PTO_HOST_BUILD_GRAPH_RUNTIME_H
#define PTO_HOST_BUILD_GRAPH_RUNTIME_H

// Published sources use names from these headers without including them.
#include <stdio.h>
#include <string.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/core_type.h"
#include "pto_build_graph_calls.h"
#include "pto_log.h"

// The published limits, which sources use as array sizes. The actual limits of this variant are
// larger.
#ifndef RUNTIME_MAX_TASKS
#define RUNTIME_MAX_TASKS 131072
#endif
#ifndef RUNTIME_MAX_ARGS
#define RUNTIME_MAX_ARGS 16
#endif
#ifndef RUNTIME_MAX_FANOUT
#define RUNTIME_MAX_FANOUT 512
#endif
#ifndef RUNTIME_MAX_TENSOR_PAIRS
#define RUNTIME_MAX_TENSOR_PAIRS 64
#endif

// Device memory for orchestrations. The host must not dereference device pointers.
struct HostApi {
  void* (*device_malloc)(size_t bytes);  // aligned to 1024 bytes; freed when the run ends
  void (*device_free)(void* device);
  int (*copy_to_device)(void* device, const void* host, size_t bytes);    // 0 = success
  int (*copy_from_device)(void* host, const void* device, size_t bytes);  // 0 = success
  // Registers the bytes of a kernel library under `func_id`; returns its address, or 0.
  uint64_t (*upload_kernel_binary)(int func_id, const uint8_t* bytes, size_t length);
};

// A task as returned by get_task(): a snapshot at the time of that call.
struct Task {
  int task_id = -1;
  int func_id = -1;
  uint64_t args[64] = {};
  int num_args = 0;
  uint64_t function_bin_addr = 0;
  CoreType core_type = CoreType::AIC;
  std::atomic<int> fanin{0};
  // an array of fanout_count task ids, valid until the next get_task(task_id)
  const int* fanout = nullptr;
  int fanout_count = 0;
  uint64_t start_time = 0;
  uint64_t end_time = 0;
};

class Runtime;

// The type of `runtime->tasks`: an array of the tasks by id, as returned by get_task().
class TaskArray {
 public:
  explicit TaskArray(Runtime* runtime) : runtime_(runtime) {}
  // If no task has this id, returns an empty task, whose task_id is -1.
  Task& operator[](int task_id) const;
  Task* operator+(int task_id) const { return &(*this)[task_id]; }

 private:
  Runtime* runtime_;
};

class Runtime {
 public:
  HostApi host_api;
  const TaskArray tasks{this};

  Runtime(const pto_build_graph_calls* calls, void* graph, const HostApi& api)
      : host_api(api), calls_(calls), graph_(graph) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Returns the task's id, counting from 0, or -1. The arguments are copied.
  int add_task(const uint64_t* args, int num_args, int func_id, CoreType core_type = CoreType::AIC,
               const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return calls_->add_task(graph_, args, num_args, func_id, static_cast<int32_t>(core_type), 0,
                            file, line);
  }

  // Task `to` starts after task `from` has completed.
  void add_successor(int from, int to) { calls_->add_successor(graph_, from, to); }

  // When all tasks have completed, `size` bytes are copied from `dev` to `host`.
  void record_tensor_pair(void* host, void* dev, size_t size) {
    calls_->record_tensor_pair(graph_, host, dev, size);
  }

  int get_tensor_pair_count() { return calls_->get_tensor_pair_count(graph_); }

  int get_task_count() { return calls_->get_task_count(graph_); }

  // Returns a copy of the task, or nullptr. It is valid while the orchestration runs. Writing to it
  // has no effect on the graph.
  Task* get_task(int task_id) {
    pto_task_view view;
    if (calls_->view_task(graph_, task_id, &view) != 0) return nullptr;
    TaskCopy& copy = tasks_[task_id];
    if (!copy.task) copy.task = std::make_unique<Task>();
    copy.fanout.resize(static_cast<size_t>(view.fanout_count));
    calls_->get_successors(graph_, task_id, copy.fanout.data(), view.fanout_count);
    fill(*copy.task, task_id, view);
    copy.task->fanout = copy.fanout.data();
    return copy.task.get();
  }

  // Writes the ids of the tasks without predecessors to `ready_tasks`, which must have space for
  // get_task_count() ids, and returns their number. With nullptr, only counts them.
  int get_initial_ready_tasks(int* ready_tasks) {
    return calls_->get_initial_ready_tasks(graph_, ready_tasks);
  }

  // Writes the graph to the log, at level info.
  void print_runtime() { calls_->print_runtime(graph_); }

  // Returns the address of a kernel; 0 if there is none.
  uint64_t get_function_bin_addr(int func_id) {
    return calls_->get_function_bin_addr(graph_, func_id);
  }
  void set_function_bin_addr(int func_id, uint64_t address) {
    calls_->set_function_bin_addr(graph_, func_id, address);
  }

  // Has no effect; it exists for sources that share code with another variant.
  void set_pto2_gm_sm_ptr(void*) {}

  // Mark a part of the orchestration in the trace of the run, under a name that is copied. Ranges
  // nest. Without a trace these calls do nothing.
  void range_begin(const char* name) { calls_->range_begin(graph_, name); }
  void range_end() { calls_->range_end(graph_); }

 private:
  friend class TaskArray;

  struct TaskCopy {
    std::unique_ptr<Task> task;
    std::vector<int> fanout;
  };

  static void fill(Task& task, int task_id, const pto_task_view& view) {
    task.task_id = task_id;
    task.func_id = view.func_id;
    for (int i = 0; i < view.num_args; ++i) task.args[i] = view.args[i];
    task.num_args = view.num_args;
    task.function_bin_addr = view.function_bin_addr;
    task.core_type = static_cast<CoreType>(view.core_type);
    task.fanin.store(view.fanin);
    task.fanout_count = view.fanout_count;
    task.start_time = view.start_time;
    task.end_time = view.end_time;
  }

  const pto_build_graph_calls* calls_;
  void* graph_;
  std::map<int, TaskCopy> tasks_;
  Task no_task_;
};

inline Task& TaskArray::operator[](int task_id) const {
  Task* task = runtime_->get_task(task_id);
  return task != nullptr ? *task : runtime_->no_task_;
}

inline int add_task(Runtime* runtime, const uint64_t* args, int num_args, int func_id,
                    CoreType core_type = CoreType::AIC, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  return runtime->add_task(args, num_args, func_id, core_type, file, line);
}

inline void add_successor(Runtime* runtime, int from, int to) {
  runtime->add_successor(from, to);
}

inline void record_tensor_pair(Runtime* runtime, void* host, void* dev, size_t size) {
  runtime->record_tensor_pair(host, dev, size);
}

inline void pto_range_begin(Runtime* runtime, const char* name) {
  runtime->range_begin(name);
}

inline void pto_range_end(Runtime* runtime) {
  runtime->range_end();
}

#endif
