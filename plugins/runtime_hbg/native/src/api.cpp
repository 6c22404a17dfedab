// pto_runtime_api over an Instance, and the one symbol that the library exports.
#include <cstring>
#include <new>

#include "instance.hpp"

namespace pto::build_graph {
namespace {

Instance& self(void* runtime) {
  return *static_cast<Instance*>(runtime);
}

template <class... Parts>
pto_status refuse(pto_error* error, pto_status status, Parts... parts) {
  ErrorLatch latch;
  latch.latch({status}, parts...);
  if (error != nullptr) *error = *latch.error();
  return status;
}

pto_status read_options(const pto_option* options, uint32_t count, uint32_t* build_mode,
                        pto_error* error) {
  for (uint32_t index = 0; index < count; ++index) {
    const char* value = options[index].value;
    if (std::strcmp(options[index].key, "build_mode") != 0) {
      return refuse(error, PTO_ERROR_USAGE, variant.name, " has no option \"", options[index].key,
                    "\"; it knows build_mode");
    }
    if (std::strcmp(value, "0") != 0 && std::strcmp(value, "1") != 0) {
      return refuse(error, PTO_ERROR_USAGE, "build_mode is \"", value,
                    "\"; use 1 (build and schedule at once) or 0 (first build, then schedule)");
    }
    *build_mode = static_cast<uint32_t>(value[0] - '0');
  }
  return PTO_OK;
}

pto_status create(const pto_platform* platform, const pto_option* options, uint32_t num_options,
                  void** runtime, pto_error* error) {
  if (platform->abi_version != PTO_ABI_VERSION || platform->struct_size != sizeof(pto_platform)) {
    return refuse(error, PTO_ERROR_LOAD, "the backend offers ABI version ", platform->abi_version,
                  " and ", variant.name, " needs ", PTO_ABI_VERSION, "; install matching versions");
  }
  uint32_t build_mode = 1;
  const pto_status status = read_options(options, num_options, &build_mode, error);
  if (status != PTO_OK) return status;
  void* memory = platform->reserve(platform->self, sizeof(Instance));
  if (memory == nullptr) {
    return refuse(error, PTO_ERROR_MEMORY, "no memory for ", variant.name, "; it needs ",
                  uint64_t{sizeof(Instance)}, " bytes to start");
  }
  auto* instance = new (memory) Instance(platform, build_mode);
  if (!instance->create()) {
    instance->destroy();
    platform->release(platform->self, memory, sizeof(Instance));
    return refuse(error, PTO_ERROR_MEMORY, "no memory for the tables of ", variant.name,
                  "; free memory on the device");
  }
  *runtime = instance;
  return PTO_OK;
}

void destroy(void* runtime) {
  const pto_platform* platform = self(runtime).context().platform;
  self(runtime).destroy();
  platform->release(platform->self, runtime, sizeof(Instance));
}

pto_status begin(void* runtime, const pto_run* run) {
  return self(runtime).begin(*run);
}
pto_status orchestrate(void* runtime) {
  return self(runtime).orchestrate();
}
void orchestration_done(void* runtime, int32_t result) {
  self(runtime).orchestration_done(result);
}

int64_t submit(void* runtime, const pto_task* task) {
  return self(runtime).submit(*task);
}
pto_status add_edge(void* runtime, int64_t from, int64_t to) {
  return self(runtime).add_edge(from, to);
}
pto_status publish(void* runtime, int64_t task) {
  return self(runtime).publish(task);
}

pto_status refuse_scope_end(void* runtime) {
  return self(runtime).context().fail({PTO_ERROR_UNSUPPORTED}, variant.name,
                                      " has no scopes; buffers live until the run ends");
}

pto_status refuse_scope_begin(void* runtime, const char*, int32_t) {
  return refuse_scope_end(runtime);
}

int64_t refuse_tensors(void* runtime, pto_tensor_task*) {
  self(runtime).context().fail({PTO_ERROR_UNSUPPORTED}, variant.name,
                               " infers no edges from tensors; submit tasks with add_task");
  return -1;
}
int32_t refuse_cluster(void* runtime, const char*, int32_t) {
  self(runtime).context().fail({PTO_ERROR_UNSUPPORTED}, variant.name, " has no clusters");
  return -1;
}
pto_status refuse_to_free_cluster(void* runtime, int32_t) {
  return self(runtime).context().fail({PTO_ERROR_UNSUPPORTED}, variant.name, " has no clusters");
}

int32_t schedule_step(void* runtime, uint32_t thread) {
  return self(runtime).step(thread);
}
int32_t stalled(void* runtime) {
  return self(runtime).stalled();
}
pto_status finalise(void* runtime) {
  return self(runtime).finalise();
}
void end(void* runtime) {
  self(runtime).end();
}
void abort(void* runtime, const pto_error* cause) {
  self(runtime).abort(cause);
}
const pto_error* last_error(void* runtime) {
  return self(runtime).context().latch.error();
}

uint32_t statistics(void* runtime, pto_statistic* out, uint32_t capacity) {
  return self(runtime).statistics(out, capacity);
}

size_t explain(void* runtime, char* out, size_t capacity) {
  return pto::build_graph::explain(self(runtime).graph(), self(runtime).scheduler(), variant.name,
                                   out, capacity);
}

const pto_runtime_api api = {
    PTO_ABI_VERSION,
    sizeof(pto_runtime_api),
    variant.name,
    variant.capabilities,
    PTO_MAX_KERNEL_ARGS,
    Graph::kMaxTasks,
    create,
    destroy,
    begin,
    orchestrate,
    orchestration_done,
    submit,
    refuse_tensors,
    add_edge,
    publish,
    refuse_scope_begin,
    refuse_scope_end,
    refuse_cluster,
    refuse_to_free_cluster,
    schedule_step,
    stalled,
    nullptr,
    finalise,
    end,
    abort,
    last_error,
    statistics,
    explain,
};

}  // namespace
}  // namespace pto::build_graph

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  if (std::strcmp(variant, pto::build_graph::variant.name) != 0) return nullptr;
  return &pto::build_graph::api;
}
