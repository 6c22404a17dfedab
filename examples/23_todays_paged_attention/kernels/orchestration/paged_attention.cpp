// Paged attention in the interface of August 2026. The steps of a sequence form a pipeline: one
// mixed task computes the scores of a block on the AIC core, and adds the block before it to the
// running softmax on both AIV cores. A MANUAL scope states the edges.
#include <cmath>

#include "pto_arg_with_deps.h"
#include "pto_orchestration_api.h"

namespace {

constexpr uint32_t kBlock = 16;
enum Kernel { kScore = 0, kAttend = 1, kNormalise = 2, kNone = -1 };

struct Cache {
  ChipTensor keys;
  ChipTensor values;
  ChipTensor table;
  float scale;

  ChipTensor block_of(const ChipTensor& pages, uint32_t sequence, uint32_t block) const {
    const uint32_t place[] = {sequence, block};
    const auto page = static_cast<uint32_t>(get_tensor_data<int32_t>(table, 2, place));
    const uint32_t shape[] = {1, pages.shapes[1], pages.shapes[2]};
    const uint32_t offsets[] = {page, 0, 0};
    return pages.view(shape, offsets);
  }
};

void attend(const Cache& cache, const ChipTensor& query, const ChipTensor& out, uint32_t sequence,
            uint32_t context) {
  const uint32_t heads[] = {query.shapes[1]};
  const uint32_t score_shape[] = {query.shapes[1], kBlock};
  const uint32_t mean_shape[] = {query.shapes[1], query.shapes[2]};
  const TensorCreateInfo scores(score_shape, 2);
  TensorCreateInfo top(heads, 1);
  TensorCreateInfo sum(heads, 1);
  TensorCreateInfo mean(mean_shape, 2);
  top.set_initial_value(-INFINITY);
  sum.set_initial_value(0.0f);
  mean.set_initial_value(0.0f);
  const TaskOutputTensors made = alloc_tensors(scores, scores, top, sum, mean);
  const uint32_t blocks = (context + kBlock - 1) / kBlock;
  PTO2TaskId before = made.task_id();
  for (uint32_t step = 0; step <= blocks; ++step) {
    const bool has_next = step < blocks;
    const bool has_block = step > 0;
    const ChipTensor keys = cache.block_of(cache.keys, sequence, has_next ? step : step - 1);
    const ChipTensor values = cache.block_of(cache.values, sequence, has_block ? step - 1 : 0);
    CoreTaskArgsWithDeps<2> args;
    args.add_input(query, keys);
    args.add_output(made.get_ref(step % 2));
    args.add_input(made.get_ref((step + 1) % 2), values);
    args.add_inout(made.get_ref(2), made.get_ref(3), made.get_ref(4));
    const uint32_t rest = has_block ? context - (step - 1) * kBlock : 0;
    args.add_scalar(rest < kBlock ? rest : kBlock, cache.scale);
    args.add_dep(made.task_id(), before);
    const int32_t vector = has_block ? kAttend : kNone;
    before =
        rt_submit_task(MixedKernels{has_next ? kScore : kNone, vector, vector}, args).task_id();
  }
  CoreTaskArgsWithDeps<2> last;
  last.add_input(made.get_ref(4), made.get_ref(3));
  last.add_output(out);
  last.launch_spec.set_block_num(static_cast<int16_t>(heads[0]));
  last.add_dep(made.task_id(), before);
  rt_submit_aiv_task(kNormalise, last);
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs&) {
  return PTO2OrchestrationConfig{7};
}

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
  const ChipTensor& query = args.tensor(0).ref();
  const ChipTensor& contexts = args.tensor(4).ref();
  const ChipTensor& out = args.tensor(5).ref();
  const Cache cache{args.tensor(1).ref(), args.tensor(2).ref(), args.tensor(3).ref(),
                    from_u64<float>(args.scalar(0))};
  const uint32_t shape[] = {1, query.shapes[1], query.shapes[2]};
  for (uint32_t sequence = 0; sequence < query.shapes[0]; ++sequence) {
    const uint32_t context = get_tensor_data<uint32_t>(contexts, 1, &sequence);
    const uint32_t offsets[] = {sequence, 0, 0};
    PTO2_SCOPE(PTO2ScopeMode::MANUAL) {
      attend(cache, query.view(shape, offsets), out.view(shape, offsets), sequence, context);
    }
  }
}
