#include "edges.hpp"
#include "runtime.h"

extern "C" int build_graph(Runtime* runtime) {
  if (runtime->orch_argc != 4) return -1;
  const uint64_t* args = runtime->orch_args;
  const auto& api = runtime->aicpu_build_api;
  int last = -1;
  build(
      {args[0], reinterpret_cast<const Edge*>(args[1]), args[2], args[3]},
      [&](uint64_t* task) {
        if (last >= 0) api.publish_task(runtime, last);
        last = api.add_task(runtime, task, 4, 0, CoreType::AIV, 0);
        return last;
      },
      [&](int64_t from, int64_t to) {
        api.add_successor_conditional(runtime, static_cast<int>(from), static_cast<int>(to));
      });
  if (last >= 0) api.publish_task(runtime, last);
  return 0;
}
