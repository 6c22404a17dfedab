// LOG_ERROR(format, ...) and similar macros write printf-style messages to the log of the run, with
// the name of the calling function.
#ifndef PTO_LOG_H
#define PTO_LOG_H

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "pto/abi/platform.h"
#include "pto_submit.h"

namespace pto_orchestration {

__attribute__((format(printf, 3, 4))) inline void log(int32_t level, const char* function,
                                                      const char* format, ...) {
  if (current_run == nullptr) return;
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const size_t needed = length < 0 ? 0 : static_cast<size_t>(length) + 1;
  char* longer = needed > sizeof line ? static_cast<char*>(std::malloc(needed)) : nullptr;
  if (longer != nullptr) {
    va_start(arguments, format);
    std::vsnprintf(longer, needed, format, arguments);
    va_end(arguments);
  }
  current_run->calls().log(current_run->runtime(), level, function,
                           longer != nullptr ? longer : line);
  std::free(longer);
}

}  // namespace pto_orchestration

#define LOG_ERROR(...) pto_orchestration::log(PTO_LOG_ERROR, __func__, __VA_ARGS__)
#define LOG_WARN(...) pto_orchestration::log(PTO_LOG_WARN, __func__, __VA_ARGS__)
#define LOG_TIMING(...) pto_orchestration::log(PTO_LOG_INFO, __func__, __VA_ARGS__)
#define LOG_INFO(...) pto_orchestration::log(PTO_LOG_INFO, __func__, __VA_ARGS__)
#define LOG_DEBUG(...) pto_orchestration::log(PTO_LOG_DEBUG, __func__, __VA_ARGS__)

// The names of April to July 2026.
#define LOG_INFO_V0(...) LOG_INFO(__VA_ARGS__)
#define LOG_INFO_V1(...) LOG_INFO(__VA_ARGS__)
#define LOG_INFO_V2(...) LOG_INFO(__VA_ARGS__)
#define LOG_INFO_V3(...) LOG_INFO(__VA_ARGS__)
#define LOG_INFO_V4(...) LOG_INFO(__VA_ARGS__)
#define LOG_INFO_V5(...) LOG_DEBUG(__VA_ARGS__)
#define LOG_INFO_V6(...) LOG_DEBUG(__VA_ARGS__)
#define LOG_INFO_V7(...) LOG_DEBUG(__VA_ARGS__)
#define LOG_INFO_V8(...) LOG_DEBUG(__VA_ARGS__)
#define LOG_INFO_V9(...) LOG_DEBUG(__VA_ARGS__)

#endif
