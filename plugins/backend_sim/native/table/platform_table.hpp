// The platform table: the services of the device for the attached runtime.
#pragma once

#include "pto/abi/platform.h"

namespace pto::sim {

class SimDevice;

pto_platform make_platform(SimDevice& device, bool deterministic, bool timing) noexcept;

}  // namespace pto::sim
