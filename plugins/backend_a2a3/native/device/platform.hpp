// The platform table of the device: what a variant on the AICPU can call.
#pragma once

#include "pto/abi/platform.h"

namespace pto::a2a3 {

class DeviceProgram;

pto_platform make_platform(DeviceProgram& device);

// Tests whether this system has the features for planning: sparse memory, and exact counts of the
// pages in use.
bool can_plan();

}  // namespace pto::a2a3
