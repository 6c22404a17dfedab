// The platform table: what the runtime attached to a device may ask of it.
#pragma once

#include "pto/abi/platform.h"

namespace pto::sim {

class Device;

pto_platform make_platform(Device& device, bool deterministic, bool checking, bool timing) noexcept;

}  // namespace pto::sim
