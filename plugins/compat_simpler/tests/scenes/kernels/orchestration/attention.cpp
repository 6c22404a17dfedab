// Attention over pages of a cache. The lengths and the pages are read with get_tensor_data.
#include <algorithm>

#include "pto_orchestration_api.h"

#define FUNC_MATMUL 0
#define FUNC_SOFTMAX 1
#define FUNC_UPDATE 2

extern "C" {
PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs& orch_args) {
  (void)orch_args;
  return PTO2OrchestrationConfig{.expected_arg_count = 7};
}
void aicpu_orchestration_entry(const ChipTaskArgs& orch_args) {
  const ChipTensor& query = orch_args.tensor(0).ref();
  const ChipTensor& key_cache = orch_args.tensor(1).ref();
  const ChipTensor& value_cache = orch_args.tensor(2).ref();
  const ChipTensor& block_table = orch_args.tensor(3).ref();
  const ChipTensor& context_lens = orch_args.tensor(4).ref();
  const ChipTensor& out = orch_args.tensor(5).ref();
  const uint64_t scale = orch_args.scalar(0);
  const uint32_t batch = context_lens.shapes[0];
  const uint32_t heads = query.shapes[0] / batch, dim = query.shapes[1];
  const uint32_t block_size = key_cache.shapes[1];
  uint32_t kv_shape[2] = {key_cache.shapes[0] * block_size, dim};
  ChipTensor keys = key_cache.reshape(kv_shape, 2);
  ChipTensor values = value_cache.reshape(kv_shape, 2);
  for (uint32_t b = 0; b < batch; ++b) {
    uint32_t bi[1] = {b};
    const int32_t length = get_tensor_data<int32_t>(context_lens, 1, bi);
    const uint32_t blocks = (static_cast<uint32_t>(length) + block_size - 1) / block_size;
    PTO2_SCOPE() {
      uint32_t o_shape[2] = {heads, dim};
      uint32_t row_shape[1] = {heads};
      uint32_t q_off[2] = {b * heads, 0};
      ChipTensor qi = query.view(o_shape, q_off);
      ChipTensor out_view = out.view(o_shape, q_off);
      TensorCreateInfo o_ci(o_shape, 2, DataType::FLOAT32);
      TensorCreateInfo row_ci(row_shape, 1, DataType::FLOAT32);
      TaskOutputTensors accumulators = alloc_tensors(o_ci, row_ci, row_ci);
      for (uint32_t n = 0; n < blocks; ++n) {
        uint32_t idx[2] = {b, n};
        const uint32_t page = static_cast<uint32_t>(get_tensor_data<int32_t>(block_table, 2, idx));
        const uint64_t valid = std::min<uint64_t>(block_size, length - n * block_size);
        uint32_t page_shape[2] = {block_size, dim}, page_off[2] = {page * block_size, 0};
        ChipTensor kj = keys.view(page_shape, page_off), vj = values.view(page_shape, page_off);
        uint32_t s_shape[2] = {heads, block_size};
        TensorCreateInfo s_ci(s_shape, 2);
        CoreTaskArgs qk;
        qk.add_input(qi, kj);
        qk.add_output(s_ci);
        qk.add_scalar(uint64_t{1});
        TaskOutputTensors qk_outs = rt_submit_aic_task(FUNC_MATMUL, qk);
        CoreTaskArgs sf;
        sf.add_input(qk_outs.get_ref(0));
        sf.add_output(s_ci, row_ci, row_ci);
        sf.add_scalar(scale, valid);
        TaskOutputTensors sf_outs = rt_submit_aiv_task(FUNC_SOFTMAX, sf);
        CoreTaskArgs pv;
        pv.add_input(sf_outs.get_ref(0), vj);
        pv.add_output(o_ci);
        pv.add_scalar(uint64_t{0});
        TaskOutputTensors pv_outs = rt_submit_aic_task(FUNC_MATMUL, pv);
        CoreTaskArgs up;
        up.add_input(sf_outs.get_ref(1), sf_outs.get_ref(2), pv_outs.get_ref(0));
        up.add_inout(accumulators.get_ref(2), accumulators.get_ref(1), accumulators.get_ref(0));
        up.add_inout(out_view);
        up.add_scalar(uint64_t{n == 0}, uint64_t{n + 1 == blocks});
        rt_submit_aiv_task(FUNC_UPDATE, up);
      }
    }
  }
}
}
