// Declares the platform table, through which a runtime uses its device.
#pragma once

#include "device.hpp"

namespace pto_backend_template {

// Returns the time of a monotonic clock in nanoseconds.
uint64_t now_ns();

pto_platform platform_of(Device& device, const pto_topology& topology);

}  // namespace pto_backend_template
