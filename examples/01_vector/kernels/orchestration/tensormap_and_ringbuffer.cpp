// Runs on an AICPU thread and adds no edges. The runtime derives add -> (+1, +2) -> multiply from
// the tensors that each task reads and writes, and allocates c, d and e until the end of the scope.

#include <cstdint>
#include <cstring>

#include "pto_orchestration_api.h"

namespace {

enum Function { kAdd = 0, kAddScalar = 1, kMultiply = 2 };

uint64_t bits(float value) {
  uint32_t pattern;
  std::memcpy(&pattern, &value, sizeof(pattern));
  return pattern;
}

void submit_add_scalar(PTO2Runtime* rt, Tensor& x, float scalar, Tensor& out) {
  PTOParam params[] = {make_input_param(x), make_scalar_param(bits(scalar)),
                       make_output_param(out)};
  pto2_rt_submit_task(rt, kAddScalar, PTO2_WORKER_VECTOR, params, 3);
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 4;
  return config;
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t shape[] = {args[3]};
  Tensor a = make_tensor_external(reinterpret_cast<void*>(args[0]), shape, 1);
  Tensor b = make_tensor_external(reinterpret_cast<void*>(args[1]), shape, 1);
  Tensor f = make_tensor_external(reinterpret_cast<void*>(args[2]), shape, 1);
  PTO2_SCOPE(rt) {
    Tensor c = make_tensor(shape, 1);
    Tensor d = make_tensor(shape, 1);
    Tensor e = make_tensor(shape, 1);

    PTOParam add[] = {make_input_param(a), make_input_param(b), make_output_param(c)};
    pto2_rt_submit_task(rt, kAdd, PTO2_WORKER_VECTOR, add, 3);
    submit_add_scalar(rt, c, 1.0f, d);
    submit_add_scalar(rt, c, 2.0f, e);
    PTOParam multiply[] = {make_input_param(d), make_input_param(e), make_output_param(f)};
    pto2_rt_submit_task(rt, kMultiply, PTO2_WORKER_VECTOR, multiply, 3);
  }
}
