// The runtime table of the two variants, and the only symbol that a library exports.
#include <cstring>

#include "instance.hpp"
#include "pto/engine/runtime_table.hpp"

namespace pto::build_graph {
namespace {

Instance& self(void* runtime) {
  return engine::instance_of<Instance>(runtime);
}

pto_runtime_api make_api() {
  pto_runtime_api api = engine::runtime_table<Instance>();
  api.capabilities = variant.capabilities;
  api.max_args = PTO_MAX_KERNEL_ARGS;
  api.max_tasks = Graph::kMaxTasks;
  api.submit = [](void* runtime, const pto_task* task) { return self(runtime).submit(*task); };
  api.access_log = [](void* runtime, pto_access_log* log) {
    *log = self(runtime).graph().log.content();
  };
  api.publish = [](void* runtime, int64_t task) { return self(runtime).publish(task); };
  if ((variant.capabilities & PTO_RUNTIME_HOST_ORCHESTRATION) == 0) return api;
  api.export_graph = [](void* runtime, void* out, size_t capacity) {
    return self(runtime).export_graph(out, capacity);
  };
  api.import_graph = [](void* runtime, const void* image, size_t bytes) {
    return self(runtime).import_graph(image, bytes);
  };
  return api;
}

const pto_runtime_api api = make_api();

}  // namespace

pto_status Options::read(const pto_option* options, uint32_t count, pto_error* error) {
  for (uint32_t index = 0; index < count; ++index) {
    const char* value = options[index].value;
    if (std::strcmp(options[index].key, "build_mode") != 0) {
      return engine::report(error, PTO_ERROR_USAGE, variant.name, " has no option \"",
                            options[index].key, "\"; its only option is build_mode");
    }
    if (std::strcmp(value, "0") != 0 && std::strcmp(value, "1") != 0) {
      return engine::report(
          error, PTO_ERROR_USAGE, "build_mode is \"", value,
          "\"; use 1 (schedule during the build) or 0 (first build, then schedule)");
    }
    build_mode = static_cast<uint32_t>(value[0] - '0');
  }
  return PTO_OK;
}

}  // namespace pto::build_graph

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  if (std::strcmp(variant, pto::build_graph::variant.name) != 0) return nullptr;
  return &pto::build_graph::api;
}
