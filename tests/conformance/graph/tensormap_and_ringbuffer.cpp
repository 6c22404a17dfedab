#include "edges.hpp"
#include "pto_orchestration_api.h"

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  return PTO2OrchestrationConfig{4};
}

extern "C" void build_graph(PTO2Runtime* rt, uint64_t* args, int) {
  PTO2_SCOPE(rt) {
    build(
        {args[0], reinterpret_cast<const Edge*>(args[1]), args[2], args[3]},
        [&](uint64_t* task) {
          PTOParam params[4];
          for (int i = 0; i < 4; ++i) params[i] = make_scalar_param(task[i]);
          return pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 4);
        },
        [&](int64_t from, int64_t to) { pto2_rt_add_dep(rt, from, to); });
  }
}
