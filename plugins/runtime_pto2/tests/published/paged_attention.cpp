// A published source with views in loops, accumulators, nested scopes, handles that are assigned
// later, and bfloat16.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "pto_orchestration_api.h"
#include "pto_types.h"
#include "tensor.h"

using namespace std;

#define N_UNROLL 4
#define FUNC_QK_MATMUL 0
#define FUNC_SOFTMAX_PREPARE 1
#define FUNC_PV_MATMUL 2
#define FUNC_ONLINE_UPDATE 3
#define FUNC_AIV_HUB 5

extern "C" {

__attribute__((visibility("default"))) PTO2OrchestrationConfig
aicpu_orchestration_config(uint64_t* args, int arg_count) {
  PTO2OrchestrationConfig config;
  config.expected_arg_count = 7;
  return config;
}

__attribute__((visibility("default"))) void aicpu_orchestration_entry(PTO2Runtime* rt,
                                                                      uint64_t* args,
                                                                      int arg_count) {
  pto2_rt_init_tensor_pool(rt);
  void* host_query = reinterpret_cast<void*>(args[0]);
  void* host_key_cache = reinterpret_cast<void*>(args[1]);
  int* host_context_lens = reinterpret_cast<int*>(args[2]);
  void* host_out = reinterpret_cast<void*>(args[3]);
  int64_t* host_config = reinterpret_cast<int64_t*>(args[4]);
  uint64_t batch = (uint64_t)(int)host_config[0];
  uint64_t num_heads = host_config[1], head_dim = host_config[2], block_size = host_config[3];
  DataType data_type = DataType::BFLOAT16;
  uint64_t elem_size = get_element_size(data_type);
  uint64_t q_tile = std::min<uint64_t>(num_heads, 128);
  uint64_t max_bn = 0;
  for (uint64_t b_idx = 0; b_idx < batch; b_idx++) {
    max_bn = max(max_bn, (host_context_lens[b_idx] + block_size - 1) / block_size);
  }
  LOG_ALWAYS(rt, "batch = %" PRIu64 ", %zu bytes", batch, (size_t)(batch * head_dim * elem_size));

  uint64_t query_shapes[2] = {batch * num_heads, head_dim};
  uint64_t key_cache_shapes[2] = {batch * max_bn * block_size, head_dim};
  uint64_t out_shapes[2] = {batch * num_heads, head_dim};
  Tensor query = make_tensor_external(host_query, query_shapes, 2, data_type);
  Tensor key_cache = make_tensor_external(host_key_cache, key_cache_shapes, 2, data_type);
  Tensor out = make_tensor_external(host_out, out_shapes, 2, DataType::FLOAT32, 1);

  int total_tasks = 0;
  for (uint64_t b_idx = 0; b_idx < batch; b_idx++) {
    uint64_t cur_seq = host_context_lens[b_idx];
    uint64_t bn_this_batch = (cur_seq + block_size - 1) / block_size;
    if (bn_this_batch == 0) continue;
    for (uint64_t q_idx = 0; q_idx < num_heads / q_tile; q_idx++) {
      PTO2_SCOPE(rt) {
        uint64_t cur_offset = b_idx * num_heads + q_idx * q_tile;
        uint64_t oi_shapes[2] = {q_tile, head_dim};
        uint64_t li_shapes[1] = {q_tile};
        Tensor oi = make_tensor(oi_shapes, 2, DataType::FLOAT32);
        Tensor li_update = make_tensor(li_shapes, 1, DataType::FLOAT32);
        Tensor mi_update = make_tensor(li_shapes, 1, DataType::FLOAT32);
        uint64_t qi_shapes[2] = {q_tile, head_dim};
        uint64_t qi_offsets[2] = {cur_offset, 0};
        Tensor qi = query.view(qi_shapes, qi_offsets);
        Tensor out_view = out.view(oi_shapes, qi_offsets);

        PTOParam params_inplace[] = {
            make_output_param(oi),
            make_output_param(li_update),
            make_output_param(mi_update),
        };
        pto2_rt_submit_task(rt, FUNC_AIV_HUB, PTO2_WORKER_VECTOR, params_inplace, 3);
        total_tasks++;

        for (uint64_t bn = 0; bn < bn_this_batch; bn++) {
          PTO2_SCOPE_GUARD(rt);
          uint64_t valid_len = min(block_size, cur_seq - bn * block_size);
          uint64_t kv_shapes[2] = {block_size, head_dim};
          uint64_t kv_offsets[2] = {(b_idx * max_bn + bn) * block_size, 0};
          Tensor kj = key_cache.view(kv_shapes, kv_offsets);
          uint64_t sij_shapes[2] = {q_tile, block_size};
          Tensor sij = make_tensor(sij_shapes, 2, DataType::FLOAT32);
          Tensor pij, li, mi;
          pij = make_tensor(sij_shapes, 2, data_type);
          li = make_tensor(li_shapes, 1);
          mi = make_tensor(li_shapes, 1);
          PTOParam params_qk[] = {make_input_param(qi), make_input_param(kj),
                                  make_output_param(sij)};
          pto2_rt_submit_task(rt, FUNC_QK_MATMUL, PTO2_WORKER_CUBE, params_qk, 3);

          uint64_t valid_shapes[2] = {q_tile, valid_len};
          uint64_t valid_offsets[2] = {0, 0};
          Tensor sij_valid = sij.view(valid_shapes, valid_offsets);
          PTOParam params_sf[] = {make_input_param(sij_valid), make_scalar_param(valid_len),
                                  make_output_param(pij), make_output_param(mi),
                                  make_output_param(li)};
          pto2_rt_submit_task(rt, FUNC_SOFTMAX_PREPARE, PTO2_WORKER_VECTOR, params_sf, 5);

          uint64_t is_first = (bn == 0) ? 1 : 0;
          uint64_t is_last = (bn == bn_this_batch - 1) ? 1 : 0;
          PTOParam params_up[] = {make_input_param(mi),        make_input_param(li),
                                  make_inout_param(mi_update), make_inout_param(li_update),
                                  make_inout_param(oi),        make_output_param(out_view),
                                  make_scalar_param(is_first), make_scalar_param(is_last)};
          pto2_rt_submit_task(rt, FUNC_ONLINE_UPDATE, PTO2_WORKER_VECTOR, params_up, 8);
          total_tasks += 3;
        }
      }
    }
  }
  LOG_INFO(rt, "tasks submitted: %d", total_tasks);
  pto2_rt_orchestration_done(rt);
}
}
