// Defines the backend table, through which the core uses the devices. The library exports one
// function, which returns the table.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "device.hpp"
#include "refusal.hpp"

namespace pto_backend_template {
namespace {

constexpr int32_t kDevices = 16;

// Reads the settings. The keys are the `native` names in the plugin's options().
size_t memory_bytes(const pto_option* options, uint32_t num_options) {
  size_t bytes = size_t{8} << 30;
  for (uint32_t i = 0; i < num_options; ++i) {
    if (std::strcmp(options[i].key, "memory_bytes") != 0) {
      refuse(PTO_ERROR_USAGE, std::string("the backend template has no option \"") +
                                  options[i].key + "\"; its only option is memory_bytes");
    }
    bytes = std::strtoull(options[i].value, nullptr, 10);
  }
  return bytes;
}

pto_status open(int32_t device_id, const pto_option* options, uint32_t num_options, void** device,
                pto_device_shape* shape, pto_error* error) {
  return guarded(error, [&] {
    if (device_id < 0 || device_id >= kDevices) {
      refuse(PTO_ERROR_USAGE, "there is no device " + std::to_string(device_id) + "; use 0 to " +
                                  std::to_string(kDevices - 1));
    }
    *device = std::make_unique<Device>(memory_bytes(options, num_options)).release();
    *shape = {Device::kBlocks, 0, 1, 0, 0, 0, nullptr};
  });
}

void close(void* device, pto_leak_report* leaks) {
  const std::unique_ptr<Device> closing(&device_of(device));
  closing->detach();
  if (leaks != nullptr) *leaks = closing->memory.leaks();
}

pto_status allocate(void* device, size_t bytes, uint64_t* address, pto_error* error) {
  return guarded(error,
                 [&] { *address = device_of(device).memory.allocate(bytes, Owner::kCaller); });
}

pto_status free_memory(void* device, uint64_t address, pto_error* error) {
  return guarded(error, [&] { device_of(device).memory.free(address); });
}

pto_status copy_in(void* device, uint64_t address, const void* host, size_t bytes,
                   pto_error* error) {
  return guarded(error, [&] { device_of(device).memory.copy_in(address, host, bytes); });
}

pto_status copy_out(void* device, void* host, uint64_t address, size_t bytes, pto_error* error) {
  return guarded(error, [&] { device_of(device).memory.copy_out(host, address, bytes); });
}

pto_status load_kernel(void* device, const pto_kernel_source* source, uint64_t* address,
                       pto_error* error) {
  return guarded(error, [&] { *address = device_of(device).kernels.load(*source); });
}

pto_status unload_kernel(void* device, uint64_t address) {
  return guarded(nullptr, [&] { device_of(device).kernels.unload(address); });
}

pto_status load_library(void* device, const char* path, uint64_t* library, pto_error* error) {
  return guarded(error, [&] { *library = device_of(device).libraries.load(path); });
}

pto_status unload_library(void* device, uint64_t library) {
  device_of(device).libraries.unload(library);
  return PTO_OK;
}

// The variant runs in this process, so the core uses its own table. A backend that runs it on the
// processor of a device returns the table of a proxy.
pto_status attach(void* device, const pto_attachment* attachment, const pto_option* options,
                  uint32_t num_options, const pto_runtime_api** table, void** runtime,
                  pto_error* error) {
  *table = attachment->api;
  return device_of(device).attach(*attachment->api, options, num_options, runtime, error);
}

void detach(void* device) {
  device_of(device).detach();
}

pto_status start(void* device, const pto_run* run, pto_error* error) {
  return guarded(error, [&] { device_of(device).start(*run); });
}

void orchestration_done(void* device, int32_t result) {
  device_of(device).orchestration_done(result);
}

pto_status wait(void* device, int64_t timeout_ns) {
  return device_of(device).wait(timeout_ns);
}

pto_status finish(void* device, pto_run_report* report, pto_error* error) {
  return guarded(error, [&] { device_of(device).finish(*report); });
}

void abort(void* device, const pto_error* cause, int32_t is_lost) {
  device_of(device).abort(cause, is_lost != 0);
}

// Returns null: this backend does not report running kernels. A backend that reports them, for
// messages about hangs and crashes, returns their page here.
const pto_activity_page* activity(void*) {
  return nullptr;
}

const pto_backend_api table = {
    PTO_ABI_VERSION,
    sizeof(pto_backend_api),
    "template",
    PTO_BACKEND_CALLBACKS | PTO_BACKEND_SAME_PROCESS | PTO_BACKEND_PLANNING,
    0,
    open,
    close,
    allocate,
    free_memory,
    copy_in,
    copy_out,
    load_kernel,
    unload_kernel,
    load_library,
    unload_library,
    attach,
    detach,
    start,
    orchestration_done,
    wait,
    finish,
    abort,
    activity,
    nullptr,  // wait_stream: no streams
};

}  // namespace
}  // namespace pto_backend_template

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry(void) {
  return &pto_backend_template::table;
}
