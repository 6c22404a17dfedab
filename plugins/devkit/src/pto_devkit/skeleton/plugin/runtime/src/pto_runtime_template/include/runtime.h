// The interface of template orchestrations.
//
//   extern "C" int build(Runtime* runtime);   // 0 = success
//
// Every tensor argument lies in device memory already: orch_args holds device pointers and scalars,
// orch_argc of them. All tasks run after the orchestration has returned. The first error of any
// call ends the run with that error, whatever the orchestration returns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pto/abi/runtime.h"

enum class CoreType : int32_t { AIC = PTO_CORE_AIC, AIV = PTO_CORE_AIV };

class Runtime {
 public:
  const int orch_argc;
  const uint64_t* const orch_args;

  Runtime(const pto_runtime_api* api, void* instance, const pto_platform* platform,
          const pto_run* run)
      : orch_argc(static_cast<int>(run->num_args)),
        orch_args(run->args),
        api_(api),
        instance_(instance),
        platform_(platform) {}

  // Returns the task's id, counting from 0, or -1. The arguments are copied.
  int64_t add_task(const uint64_t* args, int num_args, int func_id, CoreType core_type) {
    pto_task task{};
    task.func_id = func_id;
    task.core_type = static_cast<int32_t>(core_type);
    task.num_args = static_cast<uint32_t>(num_args);
    task.args = args;
    return api_->submit(instance_, &task);
  }

  // Task `to` starts after task `from` has completed.
  void add_successor(int64_t from, int64_t to) { api_->add_edge(instance_, from, to); }

  // Returns memory that is aligned to 1024 bytes and freed when the run ends; nullptr if memory is
  // exhausted.
  void* device_malloc(size_t bytes) {
    uint64_t address = 0;
    platform_->allocate(platform_->self, bytes, &address);
    return reinterpret_cast<void*>(address);
  }

 private:
  const pto_runtime_api* api_;
  void* instance_;
  const pto_platform* platform_;
};
