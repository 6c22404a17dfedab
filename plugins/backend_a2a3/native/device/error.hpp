// Errors of the device library.
#pragma once

#include "pto/abi/status.h"
#include "pto/engine/latch.hpp"

namespace pto::a2a3 {

// Writes an error whose message consists of `parts`, and returns its status.
template <class... Parts>
pto_status fail(pto_error& error, pto_status status, Parts... parts) {
  engine::ErrorLatch latch;
  latch.latch({status}, parts...);
  error = *latch.error();
  return status;
}

}  // namespace pto::a2a3
