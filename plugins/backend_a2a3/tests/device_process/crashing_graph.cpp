// An orchestration of aicpu_build_graph that crashes.
#include "runtime.h"

extern "C" int graph(Runtime*) {
  const volatile uintptr_t address = 64;
  return *reinterpret_cast<const volatile int*>(address);
}
