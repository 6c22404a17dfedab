// The codes that the fake driver returns.
#pragma once

#include "functions.hpp"

namespace pto::fake {

using a2a3::cann::Code;

inline constexpr Code kInvalidParameter = 107000;
inline constexpr Code kInvalidDevice = 107001;
inline constexpr Code kNoContext = 107002;
inline constexpr Code kForeignStream = 107003;
inline constexpr Code kInvalidHandle = 107017;
inline constexpr Code kAllocationFailed = 207001;
inline constexpr Code kNoStreamLeft = 207008;
inline constexpr Code kWaitTimeout = 507046;
inline constexpr Code kCoreTimeout = 507014;
inline constexpr Code kLost = 507010;
inline constexpr Code kAicException = 507015;
inline constexpr Code kAicpuException = 507018;
inline constexpr Code kKernelNotFound = 507027;
inline constexpr Code kAivException = 507035;
inline constexpr Code kCascade = 507899;

}  // namespace pto::fake
