#include "visible_devices.hpp"

#include <charconv>

#include "../error.hpp"

namespace pto::a2a3::cann {

pto_status find_driver_device(std::string_view visible, int32_t device, uint32_t* driver_device,
                              pto_error* error) {
  if (device < 0) {
    return fail(error, PTO_ERROR_USAGE, "device number %d is negative; numbers start at 0", device);
  }
  if (visible.empty()) {
    *driver_device = static_cast<uint32_t>(device);
    return PTO_OK;
  }
  const char* next = visible.data();
  const char* end = visible.data() + visible.size();
  int64_t previous = -1;
  for (int32_t logical = 0;; ++logical) {
    uint32_t number = 0;
    const auto read = std::from_chars(next, end, number);
    const bool is_valid = read.ec == std::errc() && (read.ptr == end || *read.ptr == ',');
    if (!is_valid || number <= previous) {
      return fail(error, PTO_ERROR_USAGE,
                  "ASCEND_RT_VISIBLE_DEVICES is \"%.*s\"; it must be a list of ascending device "
                  "numbers with commas and without spaces, for example 0,2",
                  static_cast<int>(visible.size()), visible.data());
    }
    if (logical == device) *driver_device = number;
    previous = number;
    if (read.ptr == end) {
      if (logical >= device) return PTO_OK;
      return fail(error, PTO_ERROR_USAGE,
                  "device %d does not exist: ASCEND_RT_VISIBLE_DEVICES is \"%.*s\", so the devices "
                  "are 0 to %d",
                  device, static_cast<int>(visible.size()), visible.data(), logical);
    }
    next = read.ptr + 1;
  }
}

}  // namespace pto::a2a3::cann
