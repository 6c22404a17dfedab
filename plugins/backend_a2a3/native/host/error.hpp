// Fills the error record of the ABI.
//
// A message states what happened, the values, and what to do.
#pragma once

#include "pto/abi/status.h"

namespace pto::a2a3 {

// Clears the record: ids and line become -1, everything else 0.
void clear(pto_error& error) noexcept;

// Writes status and message, and returns the status. `error` may be null.
[[gnu::format(printf, 3, 4)]] pto_status fail(pto_error* error, pto_status status,
                                              const char* format, ...) noexcept;

}  // namespace pto::a2a3
