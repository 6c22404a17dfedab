// LOG_ERROR(rt, format, ...) and similar macros write printf-style messages to the log of the run,
// with the name of the calling function. LOG_ALWAYS is shown at every log level.
#ifndef PTO2_LOG_H
#define PTO2_LOG_H

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "pto/abi/platform.h"
#include "pto_submit.h"

namespace pto_orchestration {

inline void log_list(PTO2Runtime* rt, int32_t level, const char* function, const char* format,
                     va_list arguments) {
  char line[512];
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(line, sizeof line, format, arguments);
  const size_t needed = length < 0 ? 0 : static_cast<size_t>(length) + 1;
  char* longer = needed > sizeof line ? static_cast<char*>(std::malloc(needed)) : nullptr;
  if (longer != nullptr) std::vsnprintf(longer, needed, format, again);
  va_end(again);
  rt->calls->log(rt->instance, level, function, longer != nullptr ? longer : line);
  std::free(longer);
}

__attribute__((format(printf, 4, 5))) inline void log(PTO2Runtime* rt, int32_t level,
                                                      const char* function, const char* format,
                                                      ...) {
  va_list arguments;
  va_start(arguments, format);
  log_list(rt, level, function, format, arguments);
  va_end(arguments);
}

template <int32_t level>
__attribute__((format(printf, 3, 4))) void log_at(PTO2Runtime* rt, const char* function,
                                                  const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  log_list(rt, level, function, format, arguments);
  va_end(arguments);
}

}  // namespace pto_orchestration

#define LOG_ERROR(rt, ...) pto_orchestration::log(rt, PTO_LOG_ERROR, __func__, __VA_ARGS__)
#define LOG_WARN(rt, ...) pto_orchestration::log(rt, PTO_LOG_WARN, __func__, __VA_ARGS__)
#define LOG_INFO(rt, ...) pto_orchestration::log(rt, PTO_LOG_INFO, __func__, __VA_ARGS__)
#define LOG_DEBUG(rt, ...) pto_orchestration::log(rt, PTO_LOG_DEBUG, __func__, __VA_ARGS__)
#define LOG_ALWAYS(rt, ...) pto_orchestration::log(rt, PTO_LOG_ALWAYS, __func__, __VA_ARGS__)

#endif
