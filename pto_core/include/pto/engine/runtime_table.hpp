// Builds the runtime table (pto_runtime_api) of a class.
//
// runtime_table<Instance>() fills in the functions that all variants have. Each function calls the
// member function of the same name. The submit functions report that the variant does not offer
// them; a variant replaces the functions that it offers.
//
// `Instance` provides, besides these member functions:
//   Instance::Options                  pto_status read(const pto_option*, uint32_t, pto_error*)
//   static const char* variant_name()
//   Instance(const pto_platform*, const Options&)
//   Shortage create()                  reserves memory
//   void destroy()                     releases the memory, even after create() failed
//   Context& context()
#pragma once

#include <new>

#include "pto/abi/runtime.h"
#include "pto/engine/context.hpp"

namespace pto::engine {

// The memory that create() could not reserve. `what` is NULL if nothing is missing. `option` is the
// full name of the option that reduces the required memory, NULL if there is none.
struct Shortage {
  const char* what = nullptr;
  const char* option = nullptr;
};

// Writes an error that occurs outside of a run.
template <class... Parts>
pto_status report(pto_error* error, pto_status status, Parts... parts) {
  ErrorLatch latch;
  latch.latch({status}, parts...);
  if (error != nullptr) *error = *latch.error();
  return status;
}

template <class Instance>
Instance& instance_of(void* runtime) {
  return *static_cast<Instance*>(runtime);
}

template <class Instance>
pto_status create_instance(const pto_platform* platform, const pto_option* options,
                           uint32_t num_options, void** runtime, pto_error* error) {
  const char* variant = Instance::variant_name();
  if (platform->abi_version != PTO_ABI_VERSION || platform->struct_size != sizeof(pto_platform)) {
    return report(error, PTO_ERROR_LOAD, "the backend offers ABI version ", platform->abi_version,
                  " and ", variant, " needs ", PTO_ABI_VERSION, "; install matching versions");
  }
  typename Instance::Options values;
  const pto_status status = values.read(options, num_options, error);
  if (status != PTO_OK) return status;
  void* memory = platform->reserve(platform->self, sizeof(Instance));
  if (memory == nullptr) {
    return report(error, PTO_ERROR_MEMORY, "no memory for ", variant, "; it needs ",
                  uint64_t{sizeof(Instance)}, " bytes to start");
  }
  auto* instance = new (memory) Instance(platform, values);
  const Shortage shortage = instance->create();
  if (shortage.what != nullptr) {
    const uint64_t reserved = instance->context().memory.bytes() + sizeof(Instance);
    instance->destroy();
    platform->release(platform->self, memory, sizeof(Instance));
    return report(error, PTO_ERROR_MEMORY, "no memory for ", shortage.what, " of ", variant,
                  ", which has reserved ", reserved, " bytes; ",
                  shortage.option != nullptr ? "reduce " : "free memory of the host",
                  shortage.option != nullptr ? shortage.option : "");
  }
  *runtime = instance;
  return PTO_OK;
}

template <class Instance>
void destroy_instance(void* runtime) {
  Instance& instance = instance_of<Instance>(runtime);
  const pto_platform* platform = instance.context().platform;
  instance.destroy();
  platform->release(platform->self, runtime, sizeof(Instance));
}

// Fails the run because the variant does not offer this call.
template <class Instance>
pto_status refuse_call(void* runtime, const char* reason) {
  Context& context = instance_of<Instance>(runtime).context();
  return context.fail({PTO_ERROR_UNSUPPORTED}, Instance::variant_name(), reason);
}

template <class Instance>
constexpr void refuse_submit_calls(pto_runtime_api& api) {
  api.submit = [](void* runtime, const pto_task*) -> int64_t {
    refuse_call<Instance>(runtime,
                          " finds dependencies from tensors; submit tasks with their tensors");
    return -1;
  };
  api.submit_tensors = [](void* runtime, pto_tensor_task*) -> int64_t {
    refuse_call<Instance>(runtime, " infers no edges from tensors; submit tasks with add_task");
    return -1;
  };
  api.publish = [](void* runtime, int64_t) {
    return refuse_call<Instance>(runtime,
                                 " publishes each task by itself; remove the call that publishes");
  };
  api.scope_begin = [](void* runtime, const char*, int32_t) {
    return refuse_call<Instance>(runtime, " has no scopes; buffers live until the run ends");
  };
  api.scope_end = [](void* runtime) {
    return refuse_call<Instance>(runtime, " has no scopes; buffers live until the run ends");
  };
  api.allocate_cluster = [](void* runtime, const char*, int32_t) {
    refuse_call<Instance>(runtime, " has no clusters; leave out the calls for clusters");
    return -1;
  };
  api.free_cluster = [](void* runtime, int32_t) {
    return refuse_call<Instance>(runtime, " has no clusters; leave out the calls for clusters");
  };
}

template <class Instance>
constexpr pto_runtime_api runtime_table() {
  pto_runtime_api api{};
  api.abi_version = PTO_ABI_VERSION;
  api.struct_size = sizeof api;
  api.variant = Instance::variant_name();
  api.create = create_instance<Instance>;
  api.destroy = destroy_instance<Instance>;
  api.begin = [](void* runtime, const pto_run* run) {
    return instance_of<Instance>(runtime).begin(*run);
  };
  api.orchestrate = [](void* runtime) { return instance_of<Instance>(runtime).orchestrate(); };
  api.orchestration_done = [](void* runtime, int32_t result) {
    instance_of<Instance>(runtime).orchestration_done(result);
  };
  api.add_edge = [](void* runtime, int64_t from, int64_t to) {
    return instance_of<Instance>(runtime).add_edge(from, to);
  };
  refuse_submit_calls<Instance>(api);
  api.schedule_step = [](void* runtime, uint32_t thread) {
    return instance_of<Instance>(runtime).step(thread);
  };
  api.stalled = [](void* runtime) { return instance_of<Instance>(runtime).stalled(); };
  api.finalise = [](void* runtime) { return instance_of<Instance>(runtime).finalise(); };
  api.end = [](void* runtime) { instance_of<Instance>(runtime).end(); };
  api.abort = [](void* runtime, const pto_error* cause) {
    instance_of<Instance>(runtime).abort(cause);
  };
  api.last_error = [](void* runtime, pto_error* out) {
    const pto_error* error = instance_of<Instance>(runtime).last_error();
    if (out != nullptr && error->status != PTO_OK) *out = *error;
    return error->status;
  };
  api.statistics = [](void* runtime, pto_statistic* out, uint32_t capacity) {
    return instance_of<Instance>(runtime).statistics(out, capacity);
  };
  api.explain = [](void* runtime, char* out, size_t capacity) {
    return instance_of<Instance>(runtime).explain(out, capacity);
  };
  return api;
}

}  // namespace pto::engine
