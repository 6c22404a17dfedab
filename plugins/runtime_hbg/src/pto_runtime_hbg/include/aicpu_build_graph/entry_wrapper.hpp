// The compiler includes this file after the source of an orchestration, in the only translation
// unit of its library. PTO_ORCHESTRATION_ENTRY is the name of the orchestration's entry. This file
// defines the C entry points, and exports the function that the runtime library calls.
#ifndef PTO_AICPU_BUILD_GRAPH_ENTRY_WRAPPER_HPP
#define PTO_AICPU_BUILD_GRAPH_ENTRY_WRAPPER_HPP

#include <type_traits>

#include "build_graph_entry.hpp"
#include "runtime.h"

#ifndef PTO_ORCHESTRATION_ENTRY
#error "define PTO_ORCHESTRATION_ENTRY as the name of the orchestration's entry"
#endif

extern "C" {

int aicpu_runtime_add_task(Runtime* runtime, uint64_t* args, int num_args, int func_id,
                           CoreType core_type, uint64_t function_bin_addr) {
  return runtime->add_task(args, num_args, func_id, core_type, function_bin_addr, nullptr, -1);
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
  using Entry = decltype(&::PTO_ORCHESTRATION_ENTRY);
  static_assert(std::is_invocable_v<Entry, Runtime*>,
                "the entry of an aicpu_build_graph orchestration must be callable as "
                "int entry(Runtime* runtime)");
  return pto_orchestration::run_entry({calls, graph}, args, num_args, [&](uint64_t* own_args) {
    const AicpuBuildApi api{aicpu_runtime_add_task, aicpu_runtime_add_successor_conditional,
                            aicpu_runtime_publish_task, aicpu_runtime_device_malloc,
                            aicpu_runtime_device_free};
    Runtime runtime(calls, graph, api, own_args, num_args);
    return pto_orchestration::call_entry(&::PTO_ORCHESTRATION_ENTRY, &runtime);
  });
}

}  // extern "C"

#endif
