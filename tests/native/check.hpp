// A minimal test framework: checks that report their position, and tests that run by name.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace check {

// Whether a sanitizer is compiled in. Sanitized programs are slow, so their counts are smaller.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Registration {
  Registration(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s:%d: %s\n", file, line, message.c_str());
  std::_Exit(1);  // not exit(), because other threads may still run
}

template <class Value>
std::string text(const Value& value) {
  if constexpr (std::is_convertible_v<Value, std::string>) {
    return value;
  } else {
    return std::to_string(value);
  }
}

template <class Left, class Right>
void equal(const Left& left, const Right& right, const char* what, const char* file, int line) {
  if (left == right) return;
  fail(file, line, std::string(what) + ": " + text(left) + " is not " + text(right));
}

inline void contains(const std::string& text, const std::string& part, const char* file, int line) {
  if (text.find(part) != std::string::npos) return;
  fail(file, line, "\"" + text + "\" does not contain \"" + part + "\"");
}

inline int run_all(int argc, char** argv) {
  int count = 0;
  for (const Test& test : tests()) {
    if (argc > 1 && std::strcmp(argv[1], test.name) != 0) continue;
    std::printf("%s\n", test.name);
    std::fflush(stdout);
    test.run();
    ++count;
  }
  if (count == 0) std::fprintf(stderr, "no test has that name\n");
  return count == 0;
}

}  // namespace check

#define CHECK(condition) \
  ((condition) ? (void)0 : ::check::fail(__FILE__, __LINE__, "failed: " #condition))
#define CHECK_EQUAL(left, right) \
  ::check::equal((left), (right), #left " == " #right, __FILE__, __LINE__)
#define CHECK_CONTAINS(text, part) ::check::contains((text), (part), __FILE__, __LINE__)
#define TEST(name)                                                     \
  static void name();                                                  \
  static const ::check::Registration registration_##name(#name, name); \
  static void name()
