// Tasks on all lanes of a cluster, on some of them, and on single cores.
#include "pto_orchestration_api.h"

#define FUNC_AIC 0
#define FUNC_AIV0 1
#define FUNC_AIV1 2

extern "C" void build_lanes(const ChipTaskArgs& orch_args) {
  const ChipTensor& out = orch_args.tensor(0).ref();  // 4 parts
  const auto blocks = static_cast<int16_t>(orch_args.scalar(0));
  const uint32_t shapes[1] = {out.shapes[0] / 4};
  auto part = [&](uint32_t number) {
    const uint32_t offsets[1] = {number * shapes[0]};
    return out.view(shapes, offsets);
  };
  const ChipTensor all = part(0);
  CoreTaskArgs all_args;
  all_args.add_inout(all);
  all_args.add_scalar(int64_t{0});
  all_args.launch_spec.set_block_num(blocks);
  rt_submit_task(MixedKernels{FUNC_AIC, FUNC_AIV0, FUNC_AIV1}, all_args);

  const ChipTensor one_each = part(1);
  CoreTaskArgs one_each_args;
  one_each_args.add_inout(one_each);
  one_each_args.add_scalar(int64_t{7});
  MixedKernels kernels;
  kernels.aic_kernel_id = FUNC_AIC;
  kernels.aiv0_kernel_id = FUNC_AIV0;
  rt_submit_task(kernels, one_each_args);

  const ChipTensor vectors = part(2);
  CoreTaskArgs vectors_args;
  vectors_args.add_inout(vectors);
  vectors_args.add_scalar(int32_t{-5});
  vectors_args.launch_spec.set_block_num(2);
  rt_submit_task(MixedKernels{-1, FUNC_AIV0, FUNC_AIV1}, vectors_args);

  const ChipTensor single = part(3);
  CoreTaskArgs single_args;
  single_args.add_inout(single);
  single_args.add_scalar(3);
  single_args.launch_spec.set_block_num(blocks);
  rt_submit_aiv_task(FUNC_AIV0, single_args);
  rt_submit_aic_task(FUNC_AIC, single_args);
}
