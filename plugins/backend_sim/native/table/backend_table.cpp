// The backend table, and the only function that the library exports.
#include <memory>
#include <mutex>
#include <vector>

#include "device.hpp"
#include "pto/host/backend_table.hpp"

namespace pto::sim {
namespace {

// Keeps a closed device that threads may still use; see Device::stop().
void keep_forever(SimDevice* device) {
  static std::mutex mutex;
  static std::vector<SimDevice*>* kept = new std::vector<SimDevice*>;
  const std::lock_guard lock(mutex);
  kept->push_back(device);
}

pto_status open(int32_t device_id, const pto_option* options, uint32_t num_options, void** device,
                pto_device_shape* shape, pto_error* error) {
  return host::guarded(error, [&] {
    Options parsed;
    pto_status status = parse_options(options, num_options, parsed, error);
    if (status != PTO_OK) return status;
    auto opened = std::make_unique<SimDevice>(device_id, parsed);
    status = opened->open(error);
    if (status != PTO_OK) return status;
    *shape = {parsed.blocks, parsed.mode == Mode::deterministic, 1, 0, 0, 0, nullptr};
    *device = opened.release();
    return status;
  });
}

void close(void* handle, pto_leak_report* leaks) {
  host::guarded(nullptr, [&] {
    if (leaks != nullptr) *leaks = {};
    // In the child of a fork, leave the device alone: a thread that does not exist here may hold
    // its locks.
    if (device_of(handle).is_of_another_process()) return pto_status{PTO_OK};
    std::unique_ptr<SimDevice> device(static_cast<SimDevice*>(handle));
    const bool stopped = device->stop();
    if (leaks != nullptr) *leaks = device->memory().leaks();
    if (!stopped) keep_forever(device.release());
    return pto_status{PTO_OK};
  });
}

constexpr pto_backend_api make_table() {
  pto_backend_api api = host::backend_table<SimDevice>(
      "a2a3sim", PTO_BACKEND_ACTIVITY | PTO_BACKEND_THREADS | PTO_BACKEND_DETERMINISTIC |
                     PTO_BACKEND_CHECKING | PTO_BACKEND_CALLBACKS | PTO_BACKEND_SAME_PROCESS |
                     PTO_BACKEND_TRACE_HASH | PTO_BACKEND_TRACE | PTO_BACKEND_PLANNING |
                     PTO_BACKEND_DUMP);
  api.open = open;
  api.close = close;
  return api;
}

constexpr pto_backend_api table = make_table();

}  // namespace
}  // namespace pto::sim

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry(void) {
  return &pto::sim::table;
}
