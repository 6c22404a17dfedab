// One task of a chip in a domain: tensors in, data, flags, out; then the context and a number.
#include "platform_comm/comm_context.h"
#include "pto_orchestration_api.h"

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs&) {
  return {6};
}

extern "C" void build_collective(const ChipTaskArgs& orch_args) {
  const auto* context = reinterpret_cast<const CommContext*>(orch_args.scalar(0));
  LOG_INFO("rank %u of %u", context->rankId, context->rankNum);
  CoreTaskArgs args;
  args.add_input(orch_args.tensor(0).ref());
  args.add_inout(orch_args.tensor(1).ref(), orch_args.tensor(2).ref());
  args.add_output(orch_args.tensor(3).ref());
  args.add_scalar(orch_args.scalar(0), orch_args.scalar(1));
  MixedKernels lanes;
  lanes.aiv0_kernel_id = 0;
  rt_submit_task(lanes, args);
}
