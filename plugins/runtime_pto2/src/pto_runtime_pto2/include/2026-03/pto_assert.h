// always_assert(condition) and debug_assert(condition): if the condition is false, the
// orchestration ends with an error that contains the condition, file and line. In kernels, and in
// code that is compiled without exceptions, the process ends with the same text. With NDEBUG,
// debug_assert does not evaluate its condition.
#ifndef PTO2_ASSERT_H
#define PTO2_ASSERT_H

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace pto_orchestration {

[[noreturn]] __attribute__((cold, noinline)) inline void report_false(const char* condition,
                                                                      const char* file, int line) {
  char text[512];
  std::snprintf(text, sizeof text, "assertion failed at %s:%d: %s", file, line, condition);
#ifdef __cpp_exceptions
  throw std::runtime_error(text);
#else
  std::fprintf(stderr, "%s\n", text);
  std::abort();
#endif
}

}  // namespace pto_orchestration

#ifndef always_assert
#define always_assert(...) \
  ((__VA_ARGS__) ? (void)0 : pto_orchestration::report_false(#__VA_ARGS__, __FILE__, __LINE__))
#endif

#ifndef debug_assert
#ifdef NDEBUG
#define debug_assert(...) ((void)0)
#else
#define debug_assert(...) always_assert(__VA_ARGS__)
#endif
#endif

#endif
