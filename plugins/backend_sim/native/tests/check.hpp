// Checks and a registry of tests: a minimal framework for these binaries.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Registration {
  Registration(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

[[noreturn]] inline void failed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::exit(1);
}

template <typename A, typename B>
void equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream what;
  what << text << ": " << a << " is not " << b;
  failed(file, line, what.str());
}

// Runs all tests, or those whose names are arguments.
inline int run(int argc, char** argv) {
  for (const Test& test : tests()) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], test.name) == 0;
    if (!wanted) continue;
    std::fprintf(stderr, "%s\n", test.name);
    test.body();
  }
  return 0;
}

}  // namespace check

#define TEST(name)                                                 \
  static void name();                                              \
  static const check::Registration name##_registered{#name, name}; \
  static void name()
#define CHECK(condition) \
  if (!(condition)) check::failed(__FILE__, __LINE__, "not true: " #condition)
#define CHECK_EQUAL(a, b) check::equal((a), (b), #a " == " #b, __FILE__, __LINE__)
