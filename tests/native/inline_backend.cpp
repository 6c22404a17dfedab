// The second backend, written against the ABI alone: one thread, and kernels run inside dispatch(),
// so that start() or orchestration_done() returns when the run is over.
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "pto/abi/backend.h"

namespace {

constexpr uint32_t kBlocks = 8;

struct Device {
  pto_platform platform;
  pto_topology topology;
  const pto_runtime_api* api;
  void* runtime;
  std::map<uint64_t, size_t> buffers;
  std::set<uint64_t> of_run;  // those that the run allocated
  uint64_t bytes;
  pto_run_report report;
  pto_poll_result finished;
  pto_error fault;
};

Device& self(void* device) {
  return *static_cast<Device*>(device);
}

uint64_t now(void*) {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

pto_status fail(pto_error* error, pto_status status, const char* message) {
  if (status == PTO_OK) return status;
  *error = {status, -1, -1, -1, -1, -1, 0, 0, {}, {}};
  std::strncpy(error->message, message, sizeof error->message - 1);
  return status;
}

pto_status allocate(void* raw, size_t bytes, uint64_t* address) {
  void* memory = bytes >> 40 ? nullptr : std::aligned_alloc(1024, (bytes / 1024 + 1) * 1024);
  if (memory == nullptr) return PTO_ERROR_MEMORY;
  *address = reinterpret_cast<uint64_t>(memory);
  Device& device = self(raw);
  device.buffers[*address] = bytes;
  device.bytes += bytes;
  device.report.peak_bytes = std::max(device.report.peak_bytes, device.bytes);
  return PTO_OK;
}

pto_status allocate_for_run(void* raw, size_t bytes, uint64_t* address) {
  const pto_status status = allocate(raw, bytes, address);
  if (status == PTO_OK) self(raw).of_run.insert(*address);
  return status;
}

pto_status release(void* raw, uint64_t address) {
  const auto found = self(raw).buffers.find(address);
  if (found == self(raw).buffers.end()) return PTO_ERROR_ADDRESS;
  self(raw).bytes -= found->second;
  self(raw).buffers.erase(found);
  self(raw).of_run.erase(address);
  std::free(reinterpret_cast<void*>(address));
  return PTO_OK;
}

pto_status copy(Device& device, void* to, const void* from, uint64_t address, size_t bytes) {
  const auto after = device.buffers.upper_bound(address);
  if (after == device.buffers.begin()) return PTO_ERROR_ADDRESS;
  const auto& [first, size] = *std::prev(after);
  if (bytes > size || address - first > size - bytes) return PTO_ERROR_ADDRESS;
  if (bytes > 0) std::memcpy(to, from, bytes);
  const bool is_in = reinterpret_cast<uint64_t>(to) == address;
  (is_in ? device.report.bytes_in : device.report.bytes_out) += bytes;
  ++(is_in ? device.report.copies_in : device.report.copies_out);
  return PTO_OK;
}

pto_status copy_in(void* raw, uint64_t address, const void* host, size_t bytes) {
  return copy(self(raw), reinterpret_cast<void*>(address), host, address, bytes);
}

pto_status copy_out(void* raw, void* host, uint64_t address, size_t bytes) {
  return copy(self(raw), host, reinterpret_cast<void*>(address), address, bytes);
}

// A loaded kernel is its source; the context of one from a library is its entry.
pto_status load_kernel(void*, const pto_kernel_source* from, uint64_t* address, pto_error* error) {
  pto_kernel_source kernel = *from;
  if (kernel.callback == nullptr) {
    void* library = dlopen(kernel.path, RTLD_NOW | RTLD_LOCAL);
    const char* symbol = kernel.symbol != nullptr ? kernel.symbol : "kernel_entry";
    kernel.context = library != nullptr ? dlsym(library, symbol) : nullptr;
    if (kernel.context == nullptr) return fail(error, PTO_ERROR_LOAD, dlerror());
  }
  *address = reinterpret_cast<uint64_t>(new pto_kernel_source(kernel));
  return PTO_OK;
}

void run_kernel(Device& device, const pto_dispatch& item) {
  std::vector<uint64_t> copy((item.length + 7) / 8);
  std::memcpy(copy.data(), item.payload, item.length);
  auto* payload = reinterpret_cast<pto_payload*>(copy.data());
  uint64_t* args = pto_payload_args(payload);
  for (uint32_t i = 0; i < payload->num_args; ++i) {
    if (payload->relative_args >> i & 1) args[i] += reinterpret_cast<uint64_t>(payload);
  }
  const auto& kernel = *reinterpret_cast<const pto_kernel_source*>(payload->kernel);
  const uint64_t bit = uint64_t{1} << item.core;
  if (kernel.callback == nullptr) {
    reinterpret_cast<void (*)(uint64_t*)>(kernel.context)(args);
  } else if (kernel.callback(kernel.context, payload, item.core, &device.fault) != 0) {
    device.finished.faulted.words[0] |= bit;
  }
  device.finished.done.words[0] |= bit;
  ++device.report.tasks;
  ++device.report.cores[item.core].tasks;
}

void schedule(Device& device) {
  const uint64_t start_ns = now(nullptr);
  for (int32_t step = PTO_STEP_IDLE; step != PTO_STEP_DONE && step != PTO_STEP_ERROR;) {
    step = device.api->schedule_step(device.runtime, 0);
    if (step == PTO_STEP_IDLE) step = device.api->stalled(device.runtime);
  }
  device.report.run_ns = now(nullptr) - start_ns;
}

pto_status open(int32_t, const pto_option* options, uint32_t count, void** out, pto_error* error) {
  if (count > 0) return fail(error, PTO_ERROR_USAGE, options->key);
  auto* device = new Device{};
  pto_topology& shape = device->topology;
  shape = {kBlocks, 3 * kBlocks, 1, 0, {{{(uint64_t{1} << 3 * kBlocks) - 1, 0}}, {}, {}, {}}, {}};
  std::memset(shape.core_type + kBlocks, PTO_CORE_AIV, 2 * kBlocks);
  pto_platform& table = device->platform;
  table = {PTO_ABI_VERSION,
           sizeof table,
           device,
           &shape,
           0,
           0,
           0,
           0,
           {},
           {},
           allocate_for_run,
           release,
           copy_in,
           copy_out,
           {},
           {},
           {},
           {},
           {},
           {},
           {},
           {},
           {},
           now,
           {},
           {},
           {}};
  table.reserve = [](void*, size_t bytes) {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  table.release = [](void*, void* memory, size_t bytes) { munmap(memory, bytes); };
  table.upload_kernel = [](auto...) { return pto_status{PTO_ERROR_UNSUPPORTED}; };
  table.resolve = [](void*, uint64_t library, const char* symbol, void** address) {
    *address = dlsym(reinterpret_cast<void*>(library), symbol);
    return pto_status{*address != nullptr ? PTO_OK : PTO_ERROR_LOAD};
  };
  table.dispatch = [](void* raw, uint32_t, const pto_dispatch* batch, uint32_t size) {
    for (uint32_t i = 0; i < size; ++i) run_kernel(self(raw), batch[i]);
  };
  table.poll = [](void* raw, uint32_t, pto_poll_result* result) {
    *result = std::exchange(self(raw).finished, {});
  };
  table.fault = [](void* raw, uint32_t, pto_error* cause) { *cause = self(raw).fault; };
  table.wake = [](auto...) {};
  table.log = [](auto...) {};
  return *out = device, PTO_OK;
}

void close(void* raw, pto_leak_report* leaks) {
  const auto& buffers = self(raw).buffers;
  *leaks = {buffers.size(), self(raw).bytes, 0, 0};
  while (!buffers.empty()) release(raw, buffers.begin()->first);
  delete &self(raw);
}

pto_status start(void* raw, const pto_run* run, pto_error* error) {
  Device& device = self(raw);
  device.report = {};
  device.report.peak_bytes = device.bytes;
  device.finished = {};
  const pto_status status = device.api->begin(device.runtime, run);
  *error = *device.api->last_error(device.runtime);
  if (status != PTO_OK) return device.api->end(device.runtime), status;
  if (run->library != 0) device.api->orchestrate(device.runtime);
  if (run->library != 0) schedule(device);
  return PTO_OK;
}

pto_status finish(void* raw, pto_run_report* report, pto_error* error) {
  Device& device = self(raw);
  const pto_status status = device.api->finalise(device.runtime);
  *error = *device.api->last_error(device.runtime);
  device.api->end(device.runtime);
  while (!device.of_run.empty()) release(raw, *device.of_run.begin());
  *report = device.report;
  return status;
}

template <auto kCall, class... Args>
pto_status explained(void* device, Args... args, pto_error* error) {
  return fail(error, kCall(device, args...),
              "the inline backend refuses: bad address, or no memory");
}

const pto_backend_api api = {
    PTO_ABI_VERSION,
    sizeof api,
    "inline",
    PTO_BACKEND_CALLBACKS | PTO_BACKEND_SAME_PROCESS,
    kBlocks,
    open,
    close,
    explained<allocate, size_t, uint64_t*>,
    explained<release, uint64_t>,
    explained<copy_in, uint64_t, const void*, size_t>,
    explained<copy_out, void*, uint64_t, size_t>,
    load_kernel,
    [](void*, uint64_t kernel) -> pto_status {
      return delete reinterpret_cast<pto_kernel_source*>(kernel), PTO_OK;
    },
    [](void*, const char* path, uint64_t* library, pto_error* error) {
      *library = reinterpret_cast<uint64_t>(dlopen(path, RTLD_NOW | RTLD_LOCAL));
      return *library != 0 ? pto_status{PTO_OK} : fail(error, PTO_ERROR_LOAD, dlerror());
    },
    [](void*, uint64_t library) -> pto_status {
      return dlclose(reinterpret_cast<void*>(library)), PTO_OK;
    },
    [](void* raw, const pto_runtime_api* table, const pto_option* options, uint32_t count,
       void** runtime, pto_error* error) {
      self(raw).api = table;
      const pto_status status = table->create(&self(raw).platform, options, count, runtime, error);
      return self(raw).runtime = *runtime, status;
    },
    [](void* raw) { self(raw).api->destroy(self(raw).runtime); },
    start,
    [](void* raw, int32_t result) {
      self(raw).api->orchestration_done(self(raw).runtime, result);
      schedule(self(raw));
    },
    [](void*, int64_t) -> pto_status { return PTO_OK; },
    finish,
    [](void* raw, const pto_error* cause, int32_t) {
      self(raw).api->abort(self(raw).runtime, cause);
    },
    [](void*) -> const pto_activity_page* { return nullptr; },
};
}  // namespace

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry() {
  return &api;
}
