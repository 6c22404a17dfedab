// Attention as in attention.cpp, in MANUAL scopes: each task names the tasks that it waits for.
#include <algorithm>

#include "pto_arg_with_deps.h"
#include "pto_orchestration_api.h"

#define FUNC_MATMUL 0
#define FUNC_SOFTMAX 1
#define FUNC_UPDATE 2

extern "C" void build_paged_attention(const ChipTaskArgs& orch_args) {
  const ChipTensor& query = orch_args.tensor(0).ref();
  const ChipTensor& key_cache = orch_args.tensor(1).ref();
  const ChipTensor& value_cache = orch_args.tensor(2).ref();
  const ChipTensor& block_table = orch_args.tensor(3).ref();
  const ChipTensor& context_lens = orch_args.tensor(4).ref();
  const ChipTensor& out = orch_args.tensor(5).ref();
  const uint64_t scale = orch_args.scalar(0);
  const uint32_t batch = context_lens.shapes[0], block_size = key_cache.shapes[1];
  const uint32_t heads = query.shapes[0] / batch, dim = query.shapes[1];
  const int32_t* lens = reinterpret_cast<const int32_t*>(context_lens.buffer.addr);
  const int32_t* table = reinterpret_cast<const int32_t*>(block_table.buffer.addr);
  for (uint32_t b = 0; b < batch; ++b) {
    PTO2_SCOPE(PTO2ScopeMode::MANUAL) {
      uint32_t kv_shape[2] = {key_cache.shapes[0] * block_size, dim};
      ChipTensor keys = key_cache.reshape(kv_shape, 2, true);
      ChipTensor values = value_cache.reshape(kv_shape, 2, true);
      const uint32_t length = static_cast<uint32_t>(lens[b]);
      const uint32_t blocks = (length + block_size - 1) / block_size;
      uint32_t o_shape[2] = {heads, dim}, row_shape[1] = {heads}, q_off[2] = {b * heads, 0};
      ChipTensor qi = query.view(o_shape, q_off);
      ChipTensor out_view = out.view(o_shape, q_off);
      TensorCreateInfo o_ci(o_shape, 2), row_ci(row_shape, 1);
      TaskOutputTensors acc = alloc_tensors(o_ci, row_ci, row_ci);
      PTO2TaskId last = PTO2TaskId::invalid();
      for (uint32_t n = 0; n < blocks; ++n) {
        const uint32_t page = static_cast<uint32_t>(table[b * block_table.shapes[1] + n]);
        uint32_t page_shape[2] = {block_size, dim}, page_off[2] = {page * block_size, 0};
        ChipTensor kj = keys.view(page_shape, page_off), vj = values.view(page_shape, page_off);
        uint32_t s_shape[2] = {heads, block_size};
        TensorCreateInfo s_ci(s_shape, 2);
        CoreTaskArgsWithDeps<> qk;
        qk.add_input(qi, kj);
        qk.add_output(s_ci);
        qk.add_scalar(uint64_t{1});
        TaskOutputTensors qk_outs = rt_submit_aic_task(FUNC_MATMUL, qk);
        CoreTaskArgsWithDeps<4> sf;
        sf.add_input(qk_outs.get_ref(0));
        sf.add_output(s_ci, row_ci, row_ci);
        sf.add_scalar(scale, uint64_t{std::min(block_size, length - n * block_size)});
        sf.add_dep(qk_outs.task_id());
        TaskOutputTensors sf_outs = rt_submit_aiv_task(FUNC_SOFTMAX, sf);
        CoreTaskArgsWithDeps<4> pv;
        pv.add_input(sf_outs.get_ref(0), vj);
        pv.add_output(o_ci);
        pv.add_scalar(uint64_t{0});
        pv.add_dep(sf_outs.task_id());
        TaskOutputTensors pv_outs = rt_submit_aic_task(FUNC_MATMUL, pv);
        CoreTaskArgsWithDeps<> up;
        up.add_input(sf_outs.get_ref(1), sf_outs.get_ref(2), pv_outs.get_ref(0));
        up.add_inout(acc.get_ref(2), acc.get_ref(1), acc.get_ref(0));
        up.add_inout(out_view);
        up.add_scalar(uint64_t{n == 0}, uint64_t{n + 1 == blocks});
        up.add_dep(pv_outs.task_id(), sf_outs.task_id(), acc.task_id());
        if (last.is_valid()) up.add_dep(last);
        last = rt_submit_aiv_task(FUNC_UPDATE, up).task_id();
      }
    }
  }
}
