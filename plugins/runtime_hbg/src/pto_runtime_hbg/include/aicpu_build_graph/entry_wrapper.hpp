// Comes after the source of an orchestration in its one translation unit, where
// PTO_ORCHESTRATION_ENTRY is the name of its entry; defines the C entry points and exports what the
// runtime library calls.
#ifndef PTO_AICPU_BUILD_GRAPH_ENTRY_WRAPPER_HPP
#define PTO_AICPU_BUILD_GRAPH_ENTRY_WRAPPER_HPP

#include <exception>
#include <type_traits>
#include <vector>

#include "runtime.h"

#ifndef PTO_ORCHESTRATION_ENTRY
#error "define PTO_ORCHESTRATION_ENTRY as the name of the orchestration's entry"
#endif

namespace pto_orchestration {

// The memory functions get no context, so the run of a thread is kept beside it.
struct CurrentRun {
  const pto_build_graph_calls* calls = nullptr;
  void* graph = nullptr;
};
inline thread_local CurrentRun current_run;

template <class Entry>
int32_t call_entry(Entry entry, Runtime& runtime) {
  static_assert(std::is_invocable_v<Entry, Runtime*>,
                "the entry of an aicpu_build_graph orchestration must be callable as "
                "int entry(Runtime* runtime)");
  if constexpr (std::is_invocable_v<Entry, Runtime*>) {
    using Result = std::invoke_result_t<Entry, Runtime*>;
    static_assert(std::is_void_v<Result> || std::is_integral_v<Result>,
                  "the entry of an orchestration returns int (0 = success) or void");
    if constexpr (std::is_void_v<Result>) {
      entry(&runtime);
    } else {
      return static_cast<int32_t>(entry(&runtime));
    }
  }
  return 0;
}

}  // namespace pto_orchestration

extern "C" {

int aicpu_runtime_add_task(Runtime* runtime, uint64_t* args, int num_args, int func_id,
                           CoreType core_type, uint64_t function_bin_addr) {
  return runtime->add_task(args, num_args, func_id, core_type, function_bin_addr);
}

void aicpu_runtime_add_successor_conditional(Runtime* runtime, int from, int to) {
  runtime->add_successor_conditional(from, to);
}

void aicpu_runtime_publish_task(Runtime* runtime, int task_id) {
  runtime->publish_task(task_id);
}

void* aicpu_runtime_device_malloc(size_t bytes) {
  const pto_orchestration::CurrentRun& run = pto_orchestration::current_run;
  return run.calls->device_malloc(run.graph, bytes);
}

void aicpu_runtime_device_free(void* device) {
  const pto_orchestration::CurrentRun& run = pto_orchestration::current_run;
  run.calls->device_free(run.graph, device);
}

__attribute__((visibility("default"))) int32_t pto_aicpu_build_graph_orchestrate(
    const pto_build_graph_calls* calls, void* graph, const uint64_t* args, int32_t num_args) {
  using namespace pto_orchestration;
  if (calls->version != PTO_BUILD_GRAPH_CALLS_VERSION) return -1;
  current_run = {calls, graph};
  int32_t result = -1;
#ifdef __cpp_exceptions
  try {
#endif
    const AicpuBuildApi api{aicpu_runtime_add_task, aicpu_runtime_add_successor_conditional,
                            aicpu_runtime_publish_task, aicpu_runtime_device_malloc,
                            aicpu_runtime_device_free};
    std::vector<uint64_t> own_args(args, args + num_args);
    Runtime runtime(calls, graph, api, own_args.data(), num_args);
    result = call_entry(&::PTO_ORCHESTRATION_ENTRY, runtime);
#ifdef __cpp_exceptions
  } catch (const std::exception& error) {
    calls->fail(graph, error.what());
  } catch (...) {
    calls->fail(graph, "not a std::exception");
  }
#endif
  current_run = {};
  return result;
}

}  // extern "C"

#endif
