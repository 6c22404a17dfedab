// The runtime table of this variant, and the one symbol that the library exports.
#include <cstring>

#include "instance.hpp"
#include "pto/engine/runtime_table.hpp"

namespace pto::ring_buffer {
namespace {

Orchestrator& orchestrator(void* runtime) {
  return engine::instance_of<Instance>(runtime).orchestrator();
}

constexpr pto_runtime_api make_api() {
  pto_runtime_api api = engine::runtime_table<Instance>();
  api.capabilities = PTO_RUNTIME_CONCURRENT_BUILD | PTO_RUNTIME_SCOPES |
                     PTO_RUNTIME_BLOCKING_SUBMIT | PTO_RUNTIME_TENSORS | PTO_RUNTIME_CLUSTERS |
                     PTO_RUNTIME_RING_IDS | PTO_RUNTIME_PLANNING;
  api.max_args = PTO_MAX_TASK_TENSORS + PTO_MAX_TASK_SCALARS;
  api.submit_tensors = [](void* runtime, pto_tensor_task* task) {
    return orchestrator(runtime).submit(*task);
  };
  api.scope_begin = [](void* runtime, const char* file, int32_t line) {
    return orchestrator(runtime).scope_begin(file, line);
  };
  api.scope_end = [](void* runtime) { return orchestrator(runtime).scope_end(); };
  api.allocate_cluster = [](void* runtime, const char* file, int32_t line) {
    return orchestrator(runtime).allocate_cluster(file, line);
  };
  api.free_cluster = [](void* runtime, int32_t cluster) {
    return orchestrator(runtime).free_cluster(cluster);
  };
  api.access_log = [](void* runtime, pto_access_log* log) {
    *log = orchestrator(runtime).access_log();
  };
  api.attend = [](void* runtime) { orchestrator(runtime).wait().log_long_wait(); };
  return api;
}

constexpr pto_runtime_api api = make_api();

}  // namespace
}  // namespace pto::ring_buffer

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  if (std::strcmp(variant, pto::ring_buffer::kVariant) != 0) return nullptr;
  return &pto::ring_buffer::api;
}
