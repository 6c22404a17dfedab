// The table by which a runtime reaches its device.
#pragma once

#include "device.hpp"

namespace pto_backend_template {

// Nanoseconds of a clock that never goes back.
uint64_t now_ns();

pto_platform platform_of(Device& device, const pto_topology& topology);

}  // namespace pto_backend_template
