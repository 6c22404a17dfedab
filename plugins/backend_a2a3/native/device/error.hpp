// Errors of the device library.
#pragma once

#include <cstdint>

#include "pto/abi/status.h"
#include "pto/engine/latch.hpp"

// The log of CANN, which the process on the device has, or has not.
extern "C" __attribute__((weak, visibility("default"))) void DlogRecord(int32_t module,
                                                                        int32_t level,
                                                                        const char* format, ...);

namespace pto::a2a3 {

// Adds an error to the log of CANN. The host can read it there also after it has lost the device.
inline void note_error(const char* message) {
  constexpr int32_t kAicpu = 36, kError = 3;  // of the vendor's lists
  if (DlogRecord != nullptr) DlogRecord(kAicpu, kError, "pto: %s", message);
}

// Writes an error whose message consists of `parts`, and returns its status.
template <class... Parts>
pto_status fail(pto_error& error, pto_status status, Parts... parts) {
  engine::ErrorLatch latch;
  latch.latch({status}, parts...);
  error = *latch.error();
  return status;
}

}  // namespace pto::a2a3
