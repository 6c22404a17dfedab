// The exported functions of the driver's HAL (libascend_hal.so).
//
// They take the driver's number of a device, and return codes of another list. A query that the
// driver does not have returns 3.
#include "exports.hpp"

namespace pto::fake {

using namespace a2a3::cann;

namespace {

// Of a device without a device process: clusters 0 to 24 without 3, processors 2 to 7.
constexpr uint64_t kClusters = 0x1FFFFFF & ~(1 << 3);
constexpr int64_t kProcessors = 0xFC;
constexpr uint64_t kRegisterBytes = uint64_t{25} * (8 << 20);  // 8 MiB for each cluster

// Returns the device, or null if the number is not one of the visible devices.
Device* find_device(uint32_t number) {
  for (const uint32_t visible : state().visible()) {
    if (visible == number) return &state().open(number);
  }
  return nullptr;
}

Code map_registers(const HalAddressQuery* query, size_t query_bytes, HalAddressRange* range) {
  if (query_bytes != sizeof *query || query->address_type != kHalCoreRegisters) {
    return kHalNoSuchQuery;
  }
  const Device* device = find_device(query->device_id);
  if (device == nullptr) return kHalWrongDevice;
  // Without a chip, each device has its own range, so that a wrong number is noticed.
  range->address = device->chip != nullptr
                       ? device->chip->info().register_base
                       : uint64_t{0x2000'0000'0000} + device->number * kRegisterBytes;
  range->bytes = state().settings.register_bytes;
  return 0;
}

}  // namespace

}  // namespace pto::fake

using namespace pto::fake;
using namespace pto::a2a3::cann;

extern "C" {

Code halMemCtl(int32_t type, void* query, size_t query_bytes, void* range, size_t*) {
  return enter("halMemCtl", Needs::kNothing, [&](Call&) {
    if (type != kHalAddressMap || query == nullptr || range == nullptr) return kHalNoSuchQuery;
    return map_registers(static_cast<const HalAddressQuery*>(query), query_bytes,
                         static_cast<HalAddressRange*>(range));
  });
}

Code halGetDeviceInfo(uint32_t number, int32_t module, int32_t information, int64_t* value) {
  return enter("halGetDeviceInfo", Needs::kNothing, [&](Call&) {
    const Device* device = find_device(number);
    if (device == nullptr) return kHalWrongDevice;
    const bool is_known = module == kHalModuleAicpu && information == kHalInfoOccupy;
    if (!is_known || value == nullptr) return kHalNoSuchQuery;
    *value = device->chip != nullptr ? device->chip->info().aicpu_mask : kProcessors;
    return 0;
  });
}

// Only this function answers which cores exist.
Code halGetDeviceInfoByBuff(uint32_t number, int32_t module, int32_t information, void* buffer,
                            int32_t* bytes) {
  return enter("halGetDeviceInfoByBuff", Needs::kNothing, [&](Call&) {
    const Device* device = find_device(number);
    if (device == nullptr) return kHalWrongDevice;
    const bool is_known = module == kHalModuleAicore && information == kHalInfoOccupy;
    const bool has_room = buffer != nullptr && bytes != nullptr && *bytes == sizeof(HalUnits);
    if (!is_known || !has_room || !state().settings.has_clusters) return kHalNoSuchQuery;
    const uint64_t mask = device->chip != nullptr ? device->chip->info().cluster_mask : kClusters;
    *static_cast<HalUnits*>(buffer) = {mask, 0};
    return 0;
  });
}

}  // extern "C"
