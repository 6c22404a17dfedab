#include "error.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace pto::a2a3 {

void clear(pto_error& error) noexcept {
  std::memset(&error, 0, sizeof error);
  error.func_id = -1;
  error.task = -1;
  error.other_task = -1;
  error.core = -1;
  error.line = -1;
}

pto_status fail(pto_error* error, pto_status status, const char* format, ...) noexcept {
  if (error == nullptr) return status;
  clear(*error);
  error->status = status;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return status;
}

}  // namespace pto::a2a3
