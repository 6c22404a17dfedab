// The second backend, which uses only the ABI. Kernels run inside dispatch(). Nothing is unloaded.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <memory>

#include "pto/abi/backend.h"

namespace {

struct Buffer {
  std::unique_ptr<void, void (*)(void*)> memory;
  size_t bytes;
  bool is_of_run;  // the memory is freed when the run ends
};
struct Device {
  static constexpr uint32_t kBlocks = 8, kAiv = 2 * kBlocks, kCores = 3 * kBlocks;
  pto_platform platform{};
  pto_topology topology{};
  const pto_runtime_api* api = nullptr;
  void* runtime = nullptr;
  std::map<uint64_t, Buffer> buffers;
  std::deque<pto_kernel_source> kernels;
  pto_run_report report{};
  pto_poll_result finished{};
  pto_error fault{};
};

constexpr auto self = [](void* raw) -> Device& { return *static_cast<Device*>(raw); };
constexpr auto pointer = [](uint64_t address) { return reinterpret_cast<void*>(address); };

template <bool kIsOfRun>
pto_status allocate(void* raw, size_t bytes, uint64_t* address) {
  void* memory = bytes >> 40 ? nullptr : std::aligned_alloc(1024, (bytes / 1024 + 1) * 1024);
  if ((*address = reinterpret_cast<uint64_t>(memory)) == 0) return PTO_ERROR_MEMORY;
  return self(raw).buffers.emplace(*address, Buffer{{memory, std::free}, bytes, kIsOfRun}), PTO_OK;
}

pto_status release(void* raw, uint64_t address) {
  return self(raw).buffers.erase(address) > 0 ? PTO_OK : PTO_ERROR_ADDRESS;
}

pto_status copy(Device& device, void* to, const void* from, uint64_t address, size_t bytes) {
  auto found = device.buffers.upper_bound(address);
  if (found == device.buffers.begin()) return PTO_ERROR_ADDRESS;
  const auto& [first, buffer] = *--found;
  if (bytes > buffer.bytes || address - first > buffer.bytes - bytes) return PTO_ERROR_ADDRESS;
  if (bytes > 0) std::memcpy(to, from, bytes);
  return PTO_OK;
}

constexpr auto copy_in = [](void* raw, uint64_t address, const void* host, size_t bytes) {
  return copy(self(raw), pointer(address), host, address, bytes);
};
constexpr auto copy_out = [](void* raw, void* host, uint64_t address, size_t bytes) {
  return copy(self(raw), host, pointer(address), address, bytes);
};

// A loaded kernel is a copy of its source. For a kernel from a library, the context is its entry.
pto_status load_kernel(void* raw, const pto_kernel_source* source, uint64_t* address) {
  pto_kernel_source& kernel = self(raw).kernels.emplace_back(*source);
  *address = reinterpret_cast<uint64_t>(&kernel);
  if (kernel.callback != nullptr) return PTO_OK;
  void* library = dlopen(kernel.path, RTLD_NOW | RTLD_LOCAL);
  kernel.context = library ? dlsym(library, kernel.symbol ? kernel.symbol : "kernel_entry") : 0;
  return kernel.context != nullptr ? PTO_OK : PTO_ERROR_LOAD;
}

void run_kernel(Device& device, const pto_dispatch& item) {
  uint64_t words[PTO_MAX_PAYLOAD / 8];
  auto* payload = static_cast<pto_payload*>(std::memcpy(words, item.payload, item.length));
  uint64_t* args = pto_payload_args(payload);
  for (uint32_t i = 0; i < payload->num_args; ++i)
    if (payload->relative_args >> i & 1) args[i] += reinterpret_cast<uint64_t>(payload);
  const auto& kernel = *static_cast<const pto_kernel_source*>(pointer(payload->kernel));
  auto& [done, faulted] = device.finished;
  if (kernel.callback == nullptr)
    reinterpret_cast<void (*)(uint64_t*)>(kernel.context)(args);
  else if (kernel.callback(kernel.context, payload, item.core, &device.fault) != 0)
    faulted.words[0] |= uint64_t{1} << item.core;
  done.words[0] |= uint64_t{1} << item.core;
  ++device.report.tasks, ++device.report.cores[item.core].tasks;
}

// Steps until the run ends or, if a word is given, until the word differs from `expected`.
pto_status schedule(void* raw, const uint32_t* word = nullptr, uint32_t expected = 0) {
  const Device& device = self(raw);
  for (int32_t step = PTO_STEP_IDLE; step < PTO_STEP_DONE;) {
    if (word != nullptr && *word != expected) return PTO_OK;
    step = device.api->schedule_step(device.runtime, 0);
    if (step == PTO_STEP_IDLE) step = device.api->stalled(device.runtime);
  }
  const pto_status last = device.api->last_error(device.runtime, nullptr);
  return last == PTO_ERROR_DEADLOCK ? last : PTO_ERROR_ABORTED;
}

constexpr auto skip = [](auto...) {};
constexpr auto succeed = [](auto...) { return pto_status{PTO_OK}; };
constexpr auto refuse = [](auto...) { return pto_status{PTO_ERROR_UNSUPPORTED}; };

pto_status open(int32_t, const pto_option*, uint32_t count, void** out, pto_device_shape* shape) {
  constexpr auto reserve = [](void*, size_t bytes) {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  constexpr auto unmap = [](void*, void* memory, size_t bytes) { munmap(memory, bytes); };
  constexpr auto zero = [](auto...) { return size_t{0}; };
  constexpr auto resolve = [](void*, uint64_t library, const char* symbol, void** address) {
    return (*address = dlsym(pointer(library), symbol)) ? pto_status{PTO_OK} : PTO_ERROR_LOAD;
  };
  constexpr auto dispatch = [](void* raw, uint32_t, const pto_dispatch* batch, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) run_kernel(self(raw), batch[i]);
  };
  constexpr auto poll = [](void* raw, uint32_t, pto_poll_result* result) {
    *result = self(raw).finished, self(raw).finished = {};
  };
  constexpr auto fault = [](void* raw, uint32_t, pto_error* error) { *error = self(raw).fault; };
  constexpr auto now = [](void*) { return uint64_t{1000} * static_cast<uint64_t>(std::clock()); };
  if (count > 0) return PTO_ERROR_USAGE;
  auto* device = new Device;
  device->topology = {device->kBlocks, device->kCores, 1, 0, {{{(1u << device->kCores) - 1}}}, {}};
  std::memset(device->topology.core_type + device->kBlocks, PTO_CORE_AIV, device->kAiv);
  device->platform =
      pto_platform(PTO_ABI_VERSION, sizeof(pto_platform), device, &device->topology, 0, 0, 0, 0,
                   PTO_CLOCK_NOW, 0, nullptr, nullptr, reserve, unmap, zero, allocate<true>,
                   release, allocate<false>, copy_in, copy_out, succeed, succeed, succeed, refuse,
                   resolve, dispatch, poll, fault, skip, schedule, skip, now, skip, skip, skip);
  return *shape = {Device::kBlocks, 0, 0, 0, 0, 0, nullptr}, *out = device, PTO_OK;
}

pto_status start(void* raw, const pto_run* run, pto_error* error) {
  Device& device = self(raw);
  device.report = {}, device.finished = {};
  const pto_status status = device.api->begin(device.runtime, run);
  device.api->last_error(device.runtime, error);
  if (status != PTO_OK) return device.api->end(device.runtime), status;
  if (run->library != 0) device.api->orchestrate(device.runtime), schedule(raw);
  return PTO_OK;
}

pto_status finish(void* raw, pto_run_report* report, pto_error* error) {
  Device& device = self(raw);
  const pto_status status = device.api->finalise(device.runtime);
  device.api->last_error(device.runtime, error), device.api->end(device.runtime);
  std::erase_if(device.buffers, [](const auto& entry) { return entry.second.is_of_run; });
  return *report = device.report, status;
}

// Wraps a function of the table that returns only a status: a failure also stores a message.
template <auto kCall, class... Args>
pto_status explained(Args... args, pto_error* error) {
  const pto_status status = kCall(args...);
  if (status == PTO_OK) return status;
  const char* reason = status == PTO_ERROR_LOAD ? dlerror() : "no such option or live buffer";
  *error = {status, -1, -1, -1, -1, -1, 0, 0, {}, {}, {}, 0, 0};
  return std::strncpy(error->message, reason, sizeof error->message - 1), status;
}

}  // namespace

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry() {
  constexpr auto close = [](void* raw, pto_leak_report* leaks) {
    *leaks = {self(raw).buffers.size(), 0, 0, 0};
    for (const auto& [address, buffer] : self(raw).buffers) leaks->bytes += buffer.bytes;
    delete &self(raw);
  };
  constexpr auto load = [](void*, const char* path, uint64_t* library) -> pto_status {
    void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return (*library = reinterpret_cast<uint64_t>(handle)) != 0 ? PTO_OK : PTO_ERROR_LOAD;
  };
  constexpr auto attach = [](void* raw, auto* attachment, auto* options, uint32_t count, auto** api,
                             void** runtime, pto_error* error) {
    *api = self(raw).api = attachment->api;
    const pto_status status = (*api)->create(&self(raw).platform, options, count, runtime, error);
    return self(raw).runtime = *runtime, status;
  };
  constexpr auto detach = [](void* raw) { self(raw).api->destroy(self(raw).runtime); };
  constexpr auto done = [](void* raw, int32_t result) {
    self(raw).api->orchestration_done(self(raw).runtime, result), schedule(raw);
  };
  constexpr auto abort = [](void* raw, const pto_error* cause, int32_t) {
    self(raw).api->abort(self(raw).runtime, cause);
  };
  constexpr auto activity = [](void*) -> const pto_activity_page* { return nullptr; };
  static const auto table = pto_backend_api(
      PTO_ABI_VERSION, sizeof(pto_backend_api), "inline",
      PTO_BACKEND_CALLBACKS | PTO_BACKEND_SAME_PROCESS, 0,
      explained<open, int32_t, const pto_option*, uint32_t, void**, pto_device_shape*>, close,
      explained<allocate<false>, void*, size_t, uint64_t*>, explained<release, void*, uint64_t>,
      explained<copy_in, void*, uint64_t, const void*, size_t>,
      explained<copy_out, void*, void*, uint64_t, size_t>,
      explained<load_kernel, void*, const pto_kernel_source*, uint64_t*>, succeed,
      explained<load, void*, const char*, uint64_t*>, succeed, attach, detach, start, done, succeed,
      finish, abort, activity, nullptr);
  return &table;
}
