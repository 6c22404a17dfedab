// Comes after the source of an orchestration in its one translation unit, where
// PTO_ORCHESTRATION_ENTRY is the name of its entry; exports what the runtime library calls.
#ifndef PTO_HOST_BUILD_GRAPH_ENTRY_WRAPPER_HPP
#define PTO_HOST_BUILD_GRAPH_ENTRY_WRAPPER_HPP

#include <exception>
#include <type_traits>
#include <vector>

#include "runtime.h"

#ifndef PTO_ORCHESTRATION_ENTRY
#error "define PTO_ORCHESTRATION_ENTRY as the name of the orchestration's entry"
#endif

namespace pto_orchestration {

// HostApi's functions get no context, so the run of a thread is kept beside it.
struct CurrentRun {
  const pto_build_graph_calls* calls = nullptr;
  void* graph = nullptr;
};
inline thread_local CurrentRun current_run;

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

template <class Entry>
int32_t call_entry(Entry entry, Runtime& runtime, uint64_t* args, int num_args) {
  static_assert(std::is_invocable_v<Entry, Runtime*, uint64_t*, int>,
                "the entry of a host_build_graph orchestration must be callable as "
                "int entry(Runtime* runtime, uint64_t* args, int arg_count)");
  if constexpr (std::is_invocable_v<Entry, Runtime*, uint64_t*, int>) {
    using Result = std::invoke_result_t<Entry, Runtime*, uint64_t*, int>;
    static_assert(std::is_void_v<Result> || std::is_integral_v<Result>,
                  "the entry of an orchestration returns int (0 = success) or void");
    if constexpr (std::is_void_v<Result>) {
      entry(&runtime, args, num_args);
    } else {
      return static_cast<int32_t>(entry(&runtime, args, num_args));
    }
  }
  return 0;
}

}  // namespace pto_orchestration

extern "C" __attribute__((visibility("default"))) int32_t pto_host_build_graph_orchestrate(
    const pto_build_graph_calls* calls, void* graph, const uint64_t* args, int32_t num_args) {
  using namespace pto_orchestration;
  if (calls->version != PTO_BUILD_GRAPH_CALLS_VERSION) {
    return -1;
  }
  current_run = {calls, graph};
  int32_t result = -1;
#ifdef __cpp_exceptions
  try {
#endif
    std::vector<uint64_t> own_args(args, args + num_args);
    Runtime runtime(calls, graph, make_host_api());
    result = call_entry(&::PTO_ORCHESTRATION_ENTRY, runtime, own_args.data(), num_args);
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

#endif
