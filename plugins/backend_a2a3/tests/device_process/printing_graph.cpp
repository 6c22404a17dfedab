// An orchestration of aicpu_build_graph that writes to the log.
#include "runtime.h"

extern "C" int graph(Runtime* runtime) {
  runtime->print_runtime();
  return 0;
}
