// f = (a + b + 1)(a + b + 2), in the interface of August 2026.
#include "pto_orchestration_api.h"

namespace {

enum Kernel { kAdd = 0, kAddScalar = 1, kMultiply = 2 };

TaskOutputTensors add_scalar(const ChipTensor& x, float summand) {
  const TensorCreateInfo sum(x.shapes, x.ndims);
  CoreTaskArgs args;
  args.add_input(x);
  args.add_output(sum);
  args.add_scalar(summand);
  return rt_submit_aiv_task(kAddScalar, args);
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs&) {
  return PTO2OrchestrationConfig{3};
}

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
  const ChipTensor& a = args.tensor(0).ref();
  const ChipTensor& b = args.tensor(1).ref();
  const ChipTensor& f = args.tensor(2).ref();

  const TensorCreateInfo total(a.shapes, a.ndims);
  CoreTaskArgs add;
  add.add_input(a, b);
  add.add_output(total);
  const TaskOutputTensors c = rt_submit_aiv_task(kAdd, add);
  const TaskOutputTensors d = add_scalar(c.get_ref(0), 1.0f);
  const TaskOutputTensors e = add_scalar(c.get_ref(0), 2.0f);
  CoreTaskArgs multiply;
  multiply.add_input(d.get_ref(0), e.get_ref(0));
  multiply.add_output(f);
  rt_submit_aiv_task(kMultiply, multiply);
}
