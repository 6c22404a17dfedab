// The backend table, and the only function that the library exports.
#include <memory>
#include <mutex>
#include <vector>

#include "device.hpp"
#include "table/guard.hpp"

namespace pto::sim {
namespace {

// Calls `call` if the device is usable. Otherwise returns the reason.
template <typename Call>
pto_status on_device(void* handle, pto_error* error, Call call) noexcept {
  return guarded(error, [&]() -> pto_status {
    Device& device = device_of(handle);
    const pto_status status = device.usable(error);
    return status == PTO_OK ? call(device) : status;
  });
}

// Keeps a closed device that threads may still use; see Device::stop().
void keep_forever(Device* device) {
  static std::mutex mutex;
  static std::vector<Device*>* kept = new std::vector<Device*>;
  const std::lock_guard lock(mutex);
  kept->push_back(device);
}

pto_status open(int32_t device_id, const pto_option* options, uint32_t num_options, void** device,
                pto_device_shape* shape, pto_error* error) {
  return guarded(error, [&] {
    Options parsed;
    pto_status status = parse_options(options, num_options, parsed, error);
    if (status != PTO_OK) return status;
    auto opened = std::make_unique<Device>(device_id, parsed);
    status = opened->open(error);
    if (status != PTO_OK) return status;
    *shape = {parsed.blocks, parsed.mode == Mode::deterministic, 1, 0, 0, 0, nullptr};
    *device = opened.release();
    return status;
  });
}

void close(void* handle, pto_leak_report* leaks) {
  guarded(nullptr, [&] {
    if (leaks != nullptr) *leaks = {};
    // In the child of a fork, leave the device alone: a thread that does not exist here may hold
    // its locks.
    if (device_of(handle).is_of_another_process()) return pto_status{PTO_OK};
    std::unique_ptr<Device> device(static_cast<Device*>(handle));
    const bool stopped = device->stop();
    if (leaks != nullptr) *leaks = device->memory().leaks();
    if (!stopped) keep_forever(device.release());
    return pto_status{PTO_OK};
  });
}

pto_status allocate(void* handle, size_t bytes, uint64_t* address, pto_error* error) {
  return on_device(handle, error, [&](Device& device) {
    return device.memory().allocate(bytes, Owner::caller, address, error);
  });
}

pto_status free_memory(void* handle, uint64_t address, pto_error* error) {
  return on_device(handle, error,
                   [&](Device& device) { return device.memory().free(address, error); });
}

pto_status copy_in(void* handle, uint64_t address, const void* host, size_t bytes,
                   pto_error* error) {
  return on_device(handle, error, [&](Device& device) {
    return device.memory().copy_in(address, host, bytes, error);
  });
}

pto_status copy_out(void* handle, void* host, uint64_t address, size_t bytes, pto_error* error) {
  return on_device(handle, error, [&](Device& device) {
    return device.memory().copy_out(host, address, bytes, error);
  });
}

pto_status load_kernel(void* handle, const pto_kernel_source* source, uint64_t* address,
                       pto_error* error) {
  return on_device(handle, error, [&](Device& device) {
    return device.loader().load_kernel(*source, address, error);
  });
}

pto_status unload_kernel(void* handle, uint64_t address) {
  return on_device(handle, nullptr,
                   [&](Device& device) { return device.loader().unload_kernel(address); });
}

pto_status load_library(void* handle, const char* path, uint64_t* library, pto_error* error) {
  return on_device(handle, error, [&](Device& device) {
    return device.loader().load_library(path, library, error);
  });
}

pto_status unload_library(void* handle, uint64_t library) {
  return on_device(handle, nullptr,
                   [&](Device& device) { return device.loader().unload_library(library); });
}

pto_status attach(void* handle, const pto_attachment* attachment, const pto_option* options,
                  uint32_t num_options, const pto_runtime_api** table, void** runtime,
                  pto_error* error) {
  return on_device(handle, error, [&](Device& device) {
    *table = attachment->api;  // the variant runs in this process
    return device.attach(*attachment, options, num_options, runtime, error);
  });
}

void detach(void* handle) {
  on_device(handle, nullptr, [&](Device& device) {
    device.detach();
    return PTO_OK;
  });
}

pto_status start(void* handle, const pto_run* run, pto_error* error) {
  return on_device(handle, error, [&](Device& device) { return device.start(run, error); });
}

void orchestration_done(void* handle, int32_t result) {
  on_device(handle, nullptr, [&](Device& device) {
    device.orchestration_done(result);
    return PTO_OK;
  });
}

pto_status wait(void* handle, int64_t timeout_ns) {
  return guarded(nullptr, [&] { return device_of(handle).wait(timeout_ns); });
}

pto_status finish(void* handle, pto_run_report* report, pto_error* error) {
  return on_device(handle, error, [&](Device& device) { return device.finish(report, error); });
}

void abort(void* handle, const pto_error* cause, int32_t lost) {
  guarded(nullptr, [&] {
    device_of(handle).abort(cause, lost != 0);
    return PTO_OK;
  });
}

const pto_activity_page* activity(void* handle) {
  return device_of(handle).activity();
}

const pto_backend_api table = {
    PTO_ABI_VERSION,
    sizeof(pto_backend_api),
    "a2a3sim",
    PTO_BACKEND_ACTIVITY | PTO_BACKEND_THREADS | PTO_BACKEND_DETERMINISTIC | PTO_BACKEND_CHECKING |
        PTO_BACKEND_CALLBACKS | PTO_BACKEND_SAME_PROCESS | PTO_BACKEND_TRACE_HASH |
        PTO_BACKEND_TRACE | PTO_BACKEND_PLANNING,
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
}  // namespace pto::sim

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry(void) {
  return &pto::sim::table;
}
