// Copy a tensor over an allocated one. The scalar is the expected code of its data type.
#include "pto_orchestration_api.h"

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& orch_args) {
  const ChipTensor& from = orch_args.tensor(0).ref();
  const ChipTensor& to = orch_args.tensor(1).ref();
  if (static_cast<uint64_t>(from.dtype) != orch_args.scalar(0)) {
    rt_report_fatal(PTO2_ERROR_INVALID_ARGS, "data type %d", static_cast<int>(from.dtype));
    return;
  }
  TensorCreateInfo info(from.shapes, from.ndims, from.dtype);
  CoreTaskArgs first;
  first.add_input(from);
  first.add_output(info);
  TaskOutputTensors outputs = rt_submit_aiv_task(0, first);
  CoreTaskArgs second;
  second.add_input(outputs.get_ref(0));
  second.add_output(to);
  rt_submit_aiv_task(0, second);
}
