// The numbers of devices: the logical number counts the visible devices from 0; the driver has its
// own. Only calls of the HAL take the number of the driver.
#pragma once

#include <cstdint>
#include <string_view>

#include "pto/abi/status.h"

namespace pto::a2a3::cann {

// Returns the driver's number of logical device `device`. `visible` is the value of
// ASCEND_RT_VISIBLE_DEVICES: ascending numbers separated by commas, without spaces; empty: all
// devices are visible.
pto_status find_driver_device(std::string_view visible, int32_t device, uint32_t* driver_device,
                              pto_error* error);

}  // namespace pto::a2a3::cann
