// The backend table, and the only function that the library exports.
#include <exception>
#include <memory>
#include <mutex>
#include <new>

#include "error.hpp"
#include "table/device.hpp"

namespace pto::a2a3 {
namespace {

// Keeps exceptions from crossing the ABI.
template <class Call>
pto_status guarded(pto_error* error, Call call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return fail(error, PTO_ERROR_MEMORY, "host memory is exhausted; close other programs");
  } catch (const std::exception& exception) {
    return fail(error, PTO_ERROR_INTERNAL, "the backend failed: %s", exception.what());
  }
}

// Loads CANN, once in a process.
pto_status find_driver(const cann::DriverOptions& options, const cann::Driver** driver,
                       pto_error* error) {
  static std::mutex mutex;
  static const cann::Driver* loaded = nullptr;
  static cann::DriverOptions used;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    auto fresh = std::make_unique<cann::Driver>();
    const pto_status status = fresh->load(options, error);
    if (status != PTO_OK) return status;
    used = options;
    loaded = fresh.release();
  }
  *driver = loaded;
  if (used.folder == options.folder && used.version == options.version &&
      used.is_fake == options.is_fake) {
    return PTO_OK;
  }
  return fail(error, PTO_ERROR_USAGE,
              "this process has loaded CANN from \"%s\" with other settings; use the same "
              "a2a3.library_folder, a2a3.cann_version and a2a3.fake, or another process",
              used.folder.c_str());
}

pto_status open(int32_t device_id, const pto_option* options, uint32_t num_options, void** device,
                pto_device_shape* shape, pto_error* error) {
  return guarded(error, [&] {
    Options parsed;
    const cann::Driver* driver = nullptr;
    pto_status status = parse_options(options, num_options, parsed, error);
    if (status == PTO_OK) status = find_driver(parsed.driver, &driver, error);
    if (status != PTO_OK) return status;
    auto opened = std::make_unique<Device>(*driver);
    status = opened->open(device_id, parsed, error);
    if (status != PTO_OK) return status;
    *shape = opened->shape();
    *device = opened.release();
    return status;
  });
}

void close(void* handle, pto_leak_report* leaks) {
  guarded(nullptr, [&] {
    const std::unique_ptr<Device> device(static_cast<Device*>(handle));
    pto_leak_report found = {};
    device->close(found);
    if (leaks != nullptr) *leaks = found;
    return pto_status{PTO_OK};
  });
}

pto_status allocate(void* handle, size_t bytes, uint64_t* address, pto_error* error) {
  return guarded(error,
                 [&] { return device_of(handle).buffers().allocate(bytes, address, error); });
}

pto_status free_memory(void* handle, uint64_t address, pto_error* error) {
  return guarded(error, [&] { return device_of(handle).buffers().free(address, error); });
}

pto_status copy_in(void* handle, uint64_t address, const void* host, size_t bytes,
                   pto_error* error) {
  return guarded(error,
                 [&] { return device_of(handle).memory().copy_in(address, host, bytes, error); });
}

pto_status copy_out(void* handle, void* host, uint64_t address, size_t bytes, pto_error* error) {
  return guarded(error,
                 [&] { return device_of(handle).memory().copy_out(host, address, bytes, error); });
}

pto_status load_kernel(void* handle, const pto_kernel_source* source, uint64_t* address,
                       pto_error* error) {
  return guarded(error, [&] { return device_of(handle).kernels().load(*source, address, error); });
}

pto_status unload_kernel(void* handle, uint64_t address) {
  return guarded(nullptr, [&] { return device_of(handle).kernels().unload(address); });
}

pto_status load_library(void* handle, const char* path, uint64_t* library, pto_error* error) {
  return guarded(error, [&] { return device_of(handle).load_library(path, library, error); });
}

pto_status unload_library(void* handle, uint64_t library) {
  return guarded(nullptr, [&] { return device_of(handle).unload_library(library); });
}

pto_status attach(void* handle, const pto_attachment* attachment, const pto_option* options,
                  uint32_t num_options, const pto_runtime_api** table, void** runtime,
                  pto_error* error) {
  *runtime = handle;  // of the proxy
  return guarded(error, [&] {
    return device_of(handle).attach(*attachment, {options, num_options}, table, error);
  });
}

void detach(void* handle) {
  guarded(nullptr, [&] {
    device_of(handle).detach();
    return pto_status{PTO_OK};
  });
}

pto_status start(void* handle, const pto_run* run, pto_error* error) {
  return guarded(error, [&] { return device_of(handle).start(*run, error); });
}

void orchestration_done(void* handle, int32_t result) {
  guarded(nullptr, [&] {
    device_of(handle).orchestration_done(result);
    return pto_status{PTO_OK};
  });
}

pto_status wait(void* handle, int64_t timeout_ns) {
  return guarded(nullptr, [&] { return device_of(handle).wait(timeout_ns); });
}

pto_status finish(void* handle, pto_run_report* report, pto_error* error) {
  return guarded(error, [&] { return device_of(handle).finish(report, error); });
}

void abort(void* handle, const pto_error* cause, int32_t lost) {
  guarded(nullptr, [&] {
    device_of(handle).abort(cause, lost != 0);
    return pto_status{PTO_OK};
  });
}

const pto_activity_page* activity(void* handle) {
  return device_of(handle).activity();
}

pto_status wait_stream(void* handle, uint64_t stream, int64_t timeout_ns, pto_error* error) {
  return guarded(error, [&] { return device_of(handle).wait_stream(stream, timeout_ns, error); });
}

const pto_backend_api table = {
    PTO_ABI_VERSION,
    sizeof(pto_backend_api),
    "a2a3",
    PTO_BACKEND_THREADS | PTO_BACKEND_STREAMS,
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
    wait_stream,
};

}  // namespace
}  // namespace pto::a2a3

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry(void) {
  return &pto::a2a3::table;
}
