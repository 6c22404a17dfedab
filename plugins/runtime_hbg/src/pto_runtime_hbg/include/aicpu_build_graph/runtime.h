// The interface of aicpu_build_graph orchestrations.
//
//   extern "C" int build(Runtime* runtime);   // 0 = success
//
// runs on an AICPU thread. Every tensor argument lies in device memory already: orch_args holds
// device pointers and scalars, orch_argc of them. With build_mode 1 a published task may run while
// the orchestration continues; with 0 all tasks run after it. The first error of any call ends the
// run with that error, whatever the orchestration returns. Later calls do nothing and return -1 or
// nullptr.
//
// An edge that is added twice counts twice at both tasks and is harmless. All edges into a task
// must be added before that task is published; the predecessor may have completed already. Limits:
// 64 arguments per task, function ids up to 4095, 134,217,728 tasks. The number of edges is limited
// only by memory.
//
// The names are global, so that sources may declare them themselves (`class Runtime;`) before or
// after this header. The other variant uses the same names. They do not conflict: the include path
// of a translation unit contains the folder of only one variant, and an orchestration library hides
// all symbols except its entry.
#ifndef PTO_AICPU_BUILD_GRAPH_RUNTIME_H
#define PTO_AICPU_BUILD_GRAPH_RUNTIME_H

#include <cstddef>
#include <cstdint>

#include "common/core_type.h"
#include "pto_build_graph_calls.h"

class Runtime;

// A pointer to the function that adds a task. A call through it also passes its source line.
class AddTask {
 public:
  using Function = int (*)(Runtime* runtime, uint64_t* args, int num_args, int func_id,
                           CoreType core_type, uint64_t function_bin_addr);
  AddTask(Function function) : function_(function) {}
  operator Function() const { return function_; }
  int operator()(Runtime* runtime, uint64_t* args, int num_args, int func_id, CoreType core_type,
                 uint64_t function_bin_addr, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) const;

 private:
  Function function_;
};

// The functions with which an orchestration builds its graph.
struct AicpuBuildApi {
  // Returns the task's id, counting from 0, or -1. The arguments are copied. `function_bin_addr` 0
  // means the kernel registered under `func_id`.
  AddTask add_task;
  // Task `to` starts after task `from` has completed. `from` may have completed already.
  void (*add_successor_conditional)(Runtime* runtime, int from, int to);
  // Only published tasks are scheduled. Publish each task once.
  void (*publish_task)(Runtime* runtime, int task_id);
  void* (*device_malloc)(size_t bytes);  // aligned to 1024 bytes; freed when the run ends
  void (*device_free)(void* device);
};

class Runtime {
 public:
  int orch_argc;
  uint64_t* orch_args;
  AicpuBuildApi aicpu_build_api;
  const uint64_t* kernel_addrs;  // indexed by function id, 0 to 4095; 0 if no kernel is registered
  int build_mode;                // 1: schedule during the build; 0: first build, then schedule

  Runtime(const pto_build_graph_calls* calls, void* graph, const AicpuBuildApi& api, uint64_t* args,
          int num_args)
      : orch_argc(num_args),
        orch_args(args),
        aicpu_build_api(api),
        kernel_addrs(calls->get_kernel_addrs(graph)),
        build_mode(static_cast<int>(calls->build_mode)),
        calls_(calls),
        graph_(graph) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int add_task(const uint64_t* args, int num_args, int func_id, CoreType core_type,
               uint64_t function_bin_addr, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) {
    return calls_->add_task(graph_, args, num_args, func_id, static_cast<int32_t>(core_type),
                            function_bin_addr, file, line);
  }
  void add_successor_conditional(int from, int to) { calls_->add_successor(graph_, from, to); }
  void publish_task(int task_id) { calls_->publish_task(graph_, task_id); }
  int get_task_count() { return calls_->get_task_count(graph_); }
  void print_runtime() { calls_->print_runtime(graph_); }

  // Mark a part of the orchestration in the trace of the run, under a name that is copied. Ranges
  // nest. Without a trace these calls do nothing.
  void range_begin(const char* name) { calls_->range_begin(graph_, name); }
  void range_end() { calls_->range_end(graph_); }

 private:
  const pto_build_graph_calls* calls_;
  void* graph_;
};

inline int AddTask::operator()(Runtime* runtime, uint64_t* args, int num_args, int func_id,
                               CoreType core_type, uint64_t function_bin_addr, const char* file,
                               int line) const {
  return runtime->add_task(args, num_args, func_id, core_type, function_bin_addr, file, line);
}

// The same functions as in aicpu_build_api. Reports do not show the source line of a call of
// aicpu_runtime_add_task.
extern "C" {
int aicpu_runtime_add_task(Runtime* runtime, uint64_t* args, int num_args, int func_id,
                           CoreType core_type, uint64_t function_bin_addr);
void aicpu_runtime_add_successor_conditional(Runtime* runtime, int from, int to);
void aicpu_runtime_publish_task(Runtime* runtime, int task_id);
void* aicpu_runtime_device_malloc(size_t bytes);
void aicpu_runtime_device_free(void* device);
}

inline void pto_range_begin(Runtime* runtime, const char* name) {
  runtime->range_begin(name);
}

inline void pto_range_end(Runtime* runtime) {
  runtime->range_end();
}

#endif
