// pto_runtime_api over an Instance, and the one symbol that the library exports.
#include <cstring>
#include <new>

#include "instance.hpp"

namespace pto::ring_buffer {
namespace {

Instance& self(void* runtime) {
  return *static_cast<Instance*>(runtime);
}

template <class... Parts>
pto_status refuse(pto_error* error, pto_status status, Parts... parts) {
  ErrorLatch latch;
  latch.latch({status}, parts...);
  *error = *latch.error();
  return status;
}

pto_status create(const pto_platform* platform, const pto_option* options, uint32_t num_options,
                  void** runtime, pto_error* error) {
  if (platform->abi_version != PTO_ABI_VERSION || platform->struct_size != sizeof(pto_platform)) {
    return refuse(error, PTO_ERROR_LOAD, "the backend offers ABI version ", platform->abi_version,
                  " and ", kVariant, " needs ", PTO_ABI_VERSION, "; install matching versions");
  }
  Options sizes;
  const pto_status status = sizes.read(options, num_options, error);
  if (status != PTO_OK) return status;
  void* memory = platform->reserve(platform->self, sizeof(Instance));
  if (memory == nullptr) {
    return refuse(error, PTO_ERROR_MEMORY, "no memory for ", kVariant, "; it needs ",
                  uint64_t{sizeof(Instance)}, " bytes to start");
  }
  auto* instance = new (memory) Instance(platform);
  const Shortage shortage = instance->create(sizes);
  if (shortage.what != nullptr) {
    const uint64_t reserved = instance->context().memory.bytes() + sizeof(Instance);
    instance->destroy();
    platform->release(platform->self, memory, sizeof(Instance));
    return refuse(error, PTO_ERROR_MEMORY, "no memory for ", shortage.what, " of ", kVariant,
                  ", which has ", reserved, " bytes by now; ",
                  shortage.option != nullptr ? "use a smaller pto2." : "free memory of the host",
                  shortage.option != nullptr ? shortage.option : "");
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

int64_t refuse_submit(void* runtime, const pto_task*) {
  self(runtime).context().fail({PTO_ERROR_UNSUPPORTED}, kVariant,
                               " finds dependencies from tensors; submit tasks with their tensors");
  return -1;
}
pto_status refuse_publish(void* runtime, int64_t) {
  return self(runtime).context().fail(
      {PTO_ERROR_UNSUPPORTED}, kVariant,
      " publishes each task by itself; leave out the call that publishes");
}

int64_t submit_tensors(void* runtime, pto_tensor_task* task) {
  return self(runtime).orchestrator().submit(*task);
}
pto_status add_edge(void* runtime, int64_t from, int64_t to) {
  return self(runtime).orchestrator().add_dep(from, to);
}
pto_status scope_begin(void* runtime, const char* file, int32_t line) {
  return self(runtime).orchestrator().scope_begin(file, line);
}
pto_status scope_end(void* runtime) {
  return self(runtime).orchestrator().scope_end();
}
int32_t allocate_cluster(void* runtime, const char* file, int32_t line) {
  return self(runtime).orchestrator().allocate_cluster(file, line);
}
pto_status free_cluster(void* runtime, int32_t cluster) {
  return self(runtime).orchestrator().free_cluster(cluster);
}

int32_t schedule_step(void* runtime, uint32_t thread) {
  return self(runtime).step(thread);
}
int32_t stalled(void* runtime) {
  return self(runtime).stalled();
}
void attend(void* runtime) {
  self(runtime).orchestrator().tell_long_wait();
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
  return self(runtime).last_error();
}
uint32_t statistics(void* runtime, pto_statistic* out, uint32_t capacity) {
  return self(runtime).statistics(out, capacity);
}
size_t explain(void* runtime, char* out, size_t capacity) {
  return self(runtime).explain(out, capacity);
}

const pto_runtime_api api = {
    PTO_ABI_VERSION,
    sizeof(pto_runtime_api),
    kVariant,
    PTO_RUNTIME_CONCURRENT_BUILD | PTO_RUNTIME_SCOPES | PTO_RUNTIME_BLOCKING_SUBMIT |
        PTO_RUNTIME_TENSORS | PTO_RUNTIME_CLUSTERS | PTO_RUNTIME_RING_IDS,
    PTO_MAX_TASK_TENSORS + PTO_MAX_TASK_SCALARS,
    0,
    create,
    destroy,
    begin,
    orchestrate,
    orchestration_done,
    refuse_submit,
    submit_tensors,
    add_edge,
    refuse_publish,
    scope_begin,
    scope_end,
    allocate_cluster,
    free_cluster,
    schedule_step,
    stalled,
    attend,
    finalise,
    end,
    abort,
    last_error,
    statistics,
    explain,
};

}  // namespace
}  // namespace pto::ring_buffer

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  if (std::strcmp(variant, pto::ring_buffer::kVariant) != 0) return nullptr;
  return &pto::ring_buffer::api;
}
