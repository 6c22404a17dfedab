// Defines the backend table, through which the core uses the devices. The library exports one
// function, which returns the table.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "device.hpp"
#include "pto/host/backend_table.hpp"

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
  return pto::host::guarded(error, [&] {
    if (device_id < 0 || device_id >= kDevices) {
      refuse(PTO_ERROR_USAGE, "there is no device " + std::to_string(device_id) + "; use 0 to " +
                                  std::to_string(kDevices - 1));
    }
    *device = std::make_unique<Device>(memory_bytes(options, num_options)).release();
    *shape = {Device::kBlocks, 0, 1, 0, 0, 0, nullptr};
  });
}

void close(void* device, pto_leak_report* leaks) {
  const std::unique_ptr<Device> closing(static_cast<Device*>(device));
  closing->detach();
  if (leaks != nullptr) *leaks = closing->memory().leaks();
}

constexpr pto_backend_api make_table() {
  pto_backend_api api = pto::host::backend_table<Device>(
      "template", PTO_BACKEND_CALLBACKS | PTO_BACKEND_SAME_PROCESS | PTO_BACKEND_PLANNING);
  api.open = open;
  api.close = close;
  return api;
}

constexpr pto_backend_api table = make_table();

}  // namespace
}  // namespace pto_backend_template

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry(void) {
  return &pto_backend_template::table;
}
