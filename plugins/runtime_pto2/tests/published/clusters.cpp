// A published source in the style of generated code: function groups on clusters, loops over
// blocks.
#include "pto_orchestration_api.h"

enum { FUNC_CUBE, FUNC_VECTOR };

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  return {3};
}

extern "C" int aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int arg_count) {
  const int block_dim = 4;
  const uint64_t shapes[] = {args[2]};
  Tensor input = make_tensor_external((void*)args[0], shapes, 1, DataType::FLOAT16);
  Tensor output = make_tensor_external((void*)args[1], shapes, 1, DataType::FLOAT16);
  PTO2_SCOPE(rt) {
    for (int bid = 0; bid < block_dim; bid++) {
      PTOParam params[] = {
          make_input_param(input),
          make_output_param(output),
          make_scalar_param(block_dim),
          make_scalar_param(bid),
      };
      pto2_rt_submit_task(rt, FUNC_VECTOR, PTO2_WORKER_VECTOR, params, 4);
    }
  }
  int32_t cluster_ids[block_dim];
  for (int bid = 0; bid < block_dim; bid++) cluster_ids[bid] = pto2_rt_allocate_cluster(rt);
  PTO2_SCOPE(rt) {
    for (int bid = 0; bid < block_dim; bid++) {
      Tensor pipe = make_pipe_tensor();
      PTOParam cube[] = {make_input_param(input), make_output_param(pipe)};
      int64_t first =
          pto2_rt_submit_task_clustered(rt, FUNC_CUBE, PTO2_WORKER_CUBE, cube, 2, cluster_ids[bid]);
      PTOParam vector[] = {make_input_param(pipe), make_inout_param(output)};
      int worker_type = PTO2_WORKER_VECTOR;
      auto second =
          pto2_rt_submit_task_clustered(rt, FUNC_VECTOR, worker_type, vector, 2, cluster_ids[bid]);
      pto2_rt_add_dep(rt, first, second);
    }
  }
  PTOParam blocks[] = {make_inout_param(output)};
  pto2_rt_submit_block_task(rt, FUNC_VECTOR, PTO2_WORKER_VECTOR, blocks, 1, block_dim);
  pto2_rt_submit_block_task(rt, FUNC_VECTOR, PTO2_WORKER_VECTOR, blocks, 1, block_dim, cluster_ids);
  for (int bid = 0; bid < block_dim; bid++) pto2_rt_free_cluster(rt, cluster_ids[bid]);
  return arg_count == 3 ? 0 : -1;
}
