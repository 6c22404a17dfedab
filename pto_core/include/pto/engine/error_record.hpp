// Fills the error record of the ABI.
//
// A message states what happened, the values, and what to do.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "pto/abi/status.h"

namespace pto::engine {

// Clears the record: ids and line become -1, everything else 0.
inline void clear(pto_error& error) noexcept {
  std::memset(&error, 0, sizeof error);
  error.func_id = -1;
  error.task = -1;
  error.other_task = -1;
  error.core = -1;
  error.line = -1;
}

// Writes status and message, and returns the status. `error` may be null.
[[gnu::format(printf, 3, 4)]] inline pto_status fail(pto_error* error, pto_status status,
                                                     const char* format, ...) noexcept {
  if (error == nullptr) return status;
  clear(*error);
  error->status = status;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return status;
}

}  // namespace pto::engine
