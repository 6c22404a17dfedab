// The compiler includes this file after the source of an orchestration, in the only translation
// unit of its library. PTO_ORCHESTRATION_ENTRY is the name of the orchestration's entry. This file
// exports the function that the runtime library calls.
#ifndef PTO_HOST_BUILD_GRAPH_ENTRY_WRAPPER_HPP
#define PTO_HOST_BUILD_GRAPH_ENTRY_WRAPPER_HPP

#include <type_traits>

#include "build_graph_entry.hpp"
#include "runtime.h"

#ifndef PTO_ORCHESTRATION_ENTRY
#error "define PTO_ORCHESTRATION_ENTRY as the name of the orchestration's entry"
#endif

namespace pto_orchestration {

inline HostApi make_host_api() {
  HostApi api;
  api.device_malloc = [](size_t bytes) {
    return current_run.calls->device_malloc(current_run.graph, bytes);
  };
  api.device_free = [](void* device) { current_run.calls->device_free(current_run.graph, device); };
  api.copy_to_device = [](void* device, const void* host, size_t bytes) -> int {
    return current_run.calls->copy_to_device(current_run.graph, device, host, bytes);
  };
  api.copy_from_device = [](void* host, const void* device, size_t bytes) -> int {
    return current_run.calls->copy_from_device(current_run.graph, host, device, bytes);
  };
  api.upload_kernel_binary = [](int func_id, const uint8_t* bytes, size_t length) {
    return current_run.calls->upload_kernel_binary(current_run.graph, func_id, bytes, length);
  };
  return api;
}

}  // namespace pto_orchestration

extern "C" __attribute__((visibility("default"))) int32_t pto_host_build_graph_orchestrate(
    const pto_build_graph_calls* calls, void* graph, const uint64_t* args, int32_t num_args) {
  using Entry = decltype(&::PTO_ORCHESTRATION_ENTRY);
  static_assert(std::is_invocable_v<Entry, Runtime*, uint64_t*, int>,
                "the entry of a host_build_graph orchestration must be callable as "
                "int entry(Runtime* runtime, uint64_t* args, int arg_count)");
  return pto_orchestration::run_entry({calls, graph}, args, num_args, [&](uint64_t* own_args) {
    Runtime runtime(calls, graph, pto_orchestration::make_host_api());
    return pto_orchestration::call_entry(&::PTO_ORCHESTRATION_ENTRY, &runtime, own_args, num_args);
  });
}

#endif
