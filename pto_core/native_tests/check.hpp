// The least that a test needs: checks that report where they failed, and tests that run by name.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace check {

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

inline void require(bool holds, const char* what, const char* file, int line) {
  if (holds) return;
  std::fflush(stdout);
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
  std::exit(1);
}

inline int run_all(int argc, char** argv) {
  int count = 0;
  for (const Test& test : tests()) {
    if (argc > 1 && std::strcmp(argv[1], test.name) != 0) continue;
    std::printf("%s\n", test.name);
    test.run();
    ++count;
  }
  if (count == 0) std::fprintf(stderr, "no test has that name\n");
  return count == 0;
}

}  // namespace check

#define CHECK(condition) ::check::require((condition), #condition, __FILE__, __LINE__)
#define TEST(name)                                                     \
  static void name();                                                  \
  static const ::check::Registration registration_##name(#name, name); \
  static void name()
