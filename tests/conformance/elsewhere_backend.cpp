// A backend that runs the variant elsewhere: it loads the artefact that was built for its devices,
// and returns the table of a proxy. It wraps the backend library PTO_WORKING_LIBRARY.
//
// The proxy has the functions that the core calls and no others. Its handle is not that of the
// instance, and its limits are lower than those of the variant. A variant that exports graphs has
// two instances: that of the host's library builds the graph, that of the artefact runs the image.
// The proxy of another variant has no submit path if the environment has PTO_WITHOUT_SUBMITS.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "pto/abi/backend.h"

namespace {

// The largest number of arguments of a task that the proxy accepts.
constexpr uint32_t kMaxArgs = 12;

struct Proxy {
  const pto_runtime_api* table = nullptr;  // of the artefact
  void* instance = nullptr;
};

const pto_backend_api* working = nullptr;
std::map<void*, Proxy*> proxies;  // by device
pto_runtime_api proxy_table;

const Proxy& of(void* runtime) {
  return *static_cast<Proxy*>(runtime);
}

// Calls the member function of the same name of the variant's table.
template <auto kMember, class Result, class... Arguments>
Result pass_on(void* runtime, Arguments... arguments) {
  return (of(runtime).table->*kMember)(of(runtime).instance, arguments...);
}

// The table that drives a pair of instances.
namespace pair {

struct Pair {
  void* host = nullptr;
  void* device = nullptr;
  bool is_built = false;  // whether the instance of the device has the graph
};

const pto_runtime_api* host = nullptr;
const pto_runtime_api* device = nullptr;
pto_runtime_api table;

Pair& of(void* runtime) {
  return *static_cast<Pair*>(runtime);
}

pto_status create(const pto_platform* platform, const pto_option* options, uint32_t count,
                  void** runtime, pto_error* error) {
  auto* made = new Pair;
  *runtime = made;
  pto_status status = host->create(platform, options, count, &made->host, error);
  if (status == PTO_OK) {
    status = device->create(platform, options, count, &made->device, error);
    if (status != PTO_OK) host->destroy(made->host);
  }
  if (status != PTO_OK) delete made;
  return status;
}

void destroy(void* runtime) {
  host->destroy(of(runtime).host);
  device->destroy(of(runtime).device);
  delete &of(runtime);
}

pto_status begin(void* runtime, const pto_run* run) {
  of(runtime).is_built = false;
  const pto_status status = host->begin(of(runtime).host, run);
  return status == PTO_OK ? device->begin(of(runtime).device, run) : status;
}

pto_status hand_over(Pair& instances) {
  pto_error error;
  const pto_status status = host->last_error(instances.host, &error);
  if (status != PTO_OK) {
    device->abort(instances.device, &error);
    return status;
  }
  std::vector<char> image(host->export_graph(instances.host, nullptr, 0));
  host->export_graph(instances.host, image.data(), image.size());
  const pto_status imported = device->import_graph(instances.device, image.data(), image.size());
  instances.is_built = true;
  device->orchestration_done(instances.device, 0);
  return imported;
}

pto_status last_error(void* runtime, pto_error* out) {
  const Pair& instances = of(runtime);
  if (instances.is_built) {
    const pto_status status = device->last_error(instances.device, out);
    if (status != PTO_OK) return status;
  }
  return host->last_error(instances.host, out);
}

template <auto kMember, class Result, class... Arguments>
Result on_host(void* runtime, Arguments... arguments) {
  return (host->*kMember)(of(runtime).host, arguments...);
}

template <auto kMember, class Result, class... Arguments>
Result on_device(void* runtime, Arguments... arguments) {
  return (device->*kMember)(of(runtime).device, arguments...);
}

const pto_runtime_api* fill(const pto_runtime_api* of_host, const pto_runtime_api* of_device) {
  using api = pto_runtime_api;
  host = of_host;
  device = of_device;
  table = *host;
  table.create = create;
  table.destroy = destroy;
  table.begin = begin;
  table.orchestrate = [](void* runtime) {
    host->orchestrate(of(runtime).host);
    return hand_over(of(runtime));
  };
  table.orchestration_done = [](void* runtime, int32_t result) {
    host->orchestration_done(of(runtime).host, result);
    hand_over(of(runtime));
  };
  table.submit = on_host<&api::submit, int64_t, const pto_task*>;
  table.submit_tensors = on_host<&api::submit_tensors, int64_t, pto_tensor_task*>;
  table.add_edge = on_host<&api::add_edge, pto_status, int64_t, int64_t>;
  table.publish = on_host<&api::publish, pto_status, int64_t>;
  table.scope_begin = on_host<&api::scope_begin, pto_status, const char*, int32_t>;
  table.scope_end = on_host<&api::scope_end, pto_status>;
  table.allocate_cluster = on_host<&api::allocate_cluster, int32_t, const char*, int32_t>;
  table.free_cluster = on_host<&api::free_cluster, pto_status, int32_t>;
  table.schedule_step = on_device<&api::schedule_step, int32_t, uint32_t>;
  table.stalled = on_device<&api::stalled, int32_t>;
  table.finalise = on_host<&api::finalise, pto_status>;
  table.end = [](void* runtime) {
    host->end(of(runtime).host);
    device->end(of(runtime).device);
  };
  table.abort = [](void* runtime, const pto_error* cause) {
    host->abort(of(runtime).host, cause);
    device->abort(of(runtime).device, cause);
  };
  table.last_error = last_error;
  table.statistics = on_device<&api::statistics, uint32_t, pto_statistic*, uint32_t>;
  table.explain = on_device<&api::explain, size_t, char*, size_t>;
  table.access_log = on_host<&api::access_log, void, pto_access_log*>;
  return &table;
}

}  // namespace pair

void fill(pto_runtime_api& table, const pto_runtime_api& device) {
  using api = pto_runtime_api;
  table = {};
  table.abi_version = PTO_ABI_VERSION;
  table.struct_size = sizeof table;
  table.variant = device.variant;
  table.capabilities = device.capabilities;
  table.max_args = kMaxArgs;
  table.max_tasks = device.max_tasks;
  if (device.export_graph != nullptr || std::getenv("PTO_WITHOUT_SUBMITS") == nullptr) {
    table.submit = pass_on<&api::submit, int64_t, const pto_task*>;
    table.submit_tensors = pass_on<&api::submit_tensors, int64_t, pto_tensor_task*>;
  }
  table.add_edge = pass_on<&api::add_edge, pto_status, int64_t, int64_t>;
  table.publish = pass_on<&api::publish, pto_status, int64_t>;
  table.scope_begin = pass_on<&api::scope_begin, pto_status, const char*, int32_t>;
  table.scope_end = pass_on<&api::scope_end, pto_status>;
  table.allocate_cluster = pass_on<&api::allocate_cluster, int32_t, const char*, int32_t>;
  table.free_cluster = pass_on<&api::free_cluster, pto_status, int32_t>;
  table.last_error = pass_on<&api::last_error, pto_status, pto_error*>;
  table.statistics = pass_on<&api::statistics, uint32_t, pto_statistic*, uint32_t>;
  table.explain = pass_on<&api::explain, size_t, char*, size_t>;
}

pto_status refuse(pto_error* error, const char* message) {
  *error = {PTO_ERROR_LOAD, -1, -1, -1, -1, -1, 0, 0, {}, {}, {}, 0, 0};
  std::strncpy(error->message, message, sizeof error->message - 1);
  return PTO_ERROR_LOAD;
}

pto_status attach(void* device, const pto_attachment* attachment, const pto_option* options,
                  uint32_t count, const pto_runtime_api** table, void** runtime, pto_error* error) {
  if (attachment->num_artefacts != 1 ||
      std::strcmp(attachment->artefacts[0].kind, "runtime") != 0) {
    return refuse(error, "attach() received no artefact of the kind runtime");
  }
  void* library = dlopen(attachment->artefacts[0].path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return refuse(error, dlerror());
  const auto entry =
      reinterpret_cast<pto_runtime_entry_fn>(dlsym(library, PTO_RUNTIME_ENTRY_SYMBOL));
  pto_attachment here = *attachment;
  here.api = entry(attachment->variant);
  if (here.api == attachment->api) return refuse(error, "the artefact is the library of the host");
  if (here.api->export_graph != nullptr) here.api = pair::fill(attachment->api, here.api);
  auto* proxy = new Proxy;
  const pto_status status =
      working->attach(device, &here, options, count, &proxy->table, &proxy->instance, error);
  if (status != PTO_OK) {
    delete proxy;
    return status;
  }
  fill(proxy_table, *proxy->table);
  proxies[device] = proxy;
  *table = &proxy_table;
  *runtime = proxy;
  return PTO_OK;
}

void detach(void* device) {
  working->detach(device);
  delete proxies[device];
  proxies.erase(device);
}

}  // namespace

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry() {
  static const pto_backend_api table = [] {
    void* library = dlopen(PTO_WORKING_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void* entry = dlsym(library, PTO_BACKEND_ENTRY_SYMBOL);
    working = reinterpret_cast<pto_backend_entry_fn>(entry)();
    pto_backend_api elsewhere = *working;
    elsewhere.name = "elsewhere";
    elsewhere.attach = attach;
    elsewhere.detach = detach;
    return elsewhere;
  }();
  return &table;
}
