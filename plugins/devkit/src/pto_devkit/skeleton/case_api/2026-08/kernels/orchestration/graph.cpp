// Runs on an AICPU thread while the schedulers run: submits two tasks, scale -> add. It adds no
// edge: the runtime finds that `add` reads the output of `scale`.

#include "pto_orchestration_api.h"

namespace {

enum Function { kScale = 0, kAdd = 1 };

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs&) {
  return PTO2OrchestrationConfig{5};
}

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
  const ChipTensor& a = args.tensor(0).ref();
  const ChipTensor& b = args.tensor(1).ref();
  const ChipTensor& c = args.tensor(2).ref();
  PTO2_SCOPE() {
    const TensorCreateInfo scaled(a.shapes, a.ndims);  // allocated by the submit
    CoreTaskArgs first;
    first.add_input(a);
    first.add_output(scaled);
    first.add_scalar(args.scalar(0));  // the bit pattern of `scale`, passed on unchanged
    const TaskOutputTensors made = rt_submit_aiv_task(kScale, first);
    CoreTaskArgs second;
    second.add_input(made.get_ref(0), b);
    second.add_output(c);
    rt_submit_aiv_task(kAdd, second);
  }
}
