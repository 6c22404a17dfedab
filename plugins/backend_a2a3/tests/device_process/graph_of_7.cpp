// An orchestration of aicpu_build_graph that submits one task with function 7.
#include "runtime.h"

extern "C" int graph(Runtime* runtime) {
  const AicpuBuildApi& api = runtime->aicpu_build_api;
  uint64_t args[] = {runtime->orch_args[0], runtime->orch_args[1], 1, 64};
  api.publish_task(runtime, api.add_task(runtime, args, 4, 7, CoreType::AIV, 0));
  return 0;
}
