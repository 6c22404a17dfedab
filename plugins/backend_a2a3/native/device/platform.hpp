// The platform table of the device: what a variant on the AICPU can call.
#pragma once

#include "pto/abi/platform.h"

namespace pto::a2a3 {

class Device;

pto_platform make_platform(Device& device);

}  // namespace pto::a2a3
