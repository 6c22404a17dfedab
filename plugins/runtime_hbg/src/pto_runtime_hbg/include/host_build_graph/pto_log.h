// LOG_ERROR(format, ...) and similar macros write to the log of the run in printf style, with the
// name of the calling function. Before and after the run they write to stderr.
#ifndef PTO_HOST_BUILD_GRAPH_LOG_H
#define PTO_HOST_BUILD_GRAPH_LOG_H

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "current_run.hpp"

namespace pto_orchestration {

// The same levels as in pto/abi/platform.h.
enum LogLevel : int32_t { kLogError = 0, kLogWarn = 1, kLogInfo = 2, kLogDebug = 3 };

__attribute__((format(printf, 3, 4))) inline void log(LogLevel level, const char* function,
                                                      const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  std::vector<char> line(length < 0 ? 1 : static_cast<size_t>(length) + 1);
  std::vsnprintf(line.data(), line.size(), format, again);
  va_end(again);
  va_end(arguments);
  if (current_run.calls == nullptr) {
    std::fprintf(stderr, "%s: %s\n", function, line.data());
    return;
  }
  current_run.calls->log(current_run.graph, level, function, line.data());
}

}  // namespace pto_orchestration

#define LOG_ERROR(...) pto_orchestration::log(pto_orchestration::kLogError, __func__, __VA_ARGS__)
#define LOG_WARN(...) pto_orchestration::log(pto_orchestration::kLogWarn, __func__, __VA_ARGS__)
#define LOG_INFO(...) pto_orchestration::log(pto_orchestration::kLogInfo, __func__, __VA_ARGS__)
#define LOG_DEBUG(...) pto_orchestration::log(pto_orchestration::kLogDebug, __func__, __VA_ARGS__)

#endif
