// Runs on an AICPU thread while the schedulers run: submits two tasks, scale -> add. It adds no
// edge: the runtime finds that `add` reads the output of `scale`.

#include <cstdint>

#include "pto_orchestration_api.h"

namespace {

enum Function { kScale = 0, kAdd = 1 };

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 5;
  return config;
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t scale = args[3];  // a bit pattern, passed on unchanged
  const uint64_t shape[] = {args[4]};
  Tensor a = make_tensor_external(reinterpret_cast<void*>(args[0]), shape, 1);
  Tensor b = make_tensor_external(reinterpret_cast<void*>(args[1]), shape, 1);
  Tensor c = make_tensor_external(reinterpret_cast<void*>(args[2]), shape, 1);
  PTO2_SCOPE(rt) {
    Tensor scaled = make_tensor(shape, 1);  // an output, allocated when the task is submitted
    PTOParam first[] = {make_input_param(a), make_scalar_param(scale), make_output_param(scaled)};
    pto2_rt_submit_task(rt, kScale, PTO2_WORKER_VECTOR, first, 3);
    PTOParam second[] = {make_input_param(scaled), make_input_param(b), make_output_param(c)};
    pto2_rt_submit_task(rt, kAdd, PTO2_WORKER_VECTOR, second, 3);
  }
}
