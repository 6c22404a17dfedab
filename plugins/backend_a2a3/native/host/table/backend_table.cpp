// The backend table, and the only function that the library exports.
#include <memory>
#include <mutex>

#include "error.hpp"
#include "pto/host/backend_table.hpp"
#include "table/device.hpp"

namespace pto::a2a3 {
namespace {

// Loads CANN, once in a process.
pto_status find_driver(const cann::DriverOptions& options, const cann::CannDriver** driver,
                       pto_error* error) {
  static std::mutex mutex;
  static const cann::CannDriver* loaded = nullptr;
  static cann::DriverOptions used;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    auto fresh = std::make_unique<cann::CannDriver>();
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
  return host::guarded(error, [&] {
    Options parsed;
    const cann::CannDriver* driver = nullptr;
    pto_status status = parse_options(options, num_options, parsed, error);
    if (status == PTO_OK) status = find_driver(parsed.driver, &driver, error);
    if (status != PTO_OK) return status;
    auto opened = std::make_unique<CardDevice>(*driver);
    status = opened->open(device_id, parsed, error);
    if (status != PTO_OK) return status;
    *shape = opened->shape();
    *device = opened.release();
    return status;
  });
}

void close(void* handle, pto_leak_report* leaks) {
  host::guarded(nullptr, [&] {
    const std::unique_ptr<CardDevice> device(static_cast<CardDevice*>(handle));
    pto_leak_report found = {};
    device->close(found);
    if (leaks != nullptr) *leaks = found;
    return pto_status{PTO_OK};
  });
}

constexpr pto_backend_api make_table() {
  pto_backend_api api = host::backend_table<CardDevice>(
      "a2a3", PTO_BACKEND_THREADS | PTO_BACKEND_STREAMS | PTO_BACKEND_DUMP);
  api.open = open;
  api.close = close;
  return api;
}

constexpr pto_backend_api table = make_table();

}  // namespace
}  // namespace pto::a2a3

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry(void) {
  return &pto::a2a3::table;
}
