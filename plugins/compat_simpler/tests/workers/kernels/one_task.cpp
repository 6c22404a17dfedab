// One task on the only tensor.
#include "pto_orchestration_api.h"

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& orch_args) {
  CoreTaskArgs args;
  args.add_inout(orch_args.tensor(0).ref());
  rt_submit_aiv_task(0, args);
}
