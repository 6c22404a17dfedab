// f = (a + b + 1) * (a + b + 2)
#include "pto_orchestration_api.h"

extern "C" {

PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs& orch_args) {
  (void)orch_args;
  return PTO2OrchestrationConfig{
      .expected_arg_count = 4,
  };
}

void build_vector(const ChipTaskArgs& orch_args) {
  const ChipTensor& ext_a = orch_args.tensor(0).ref();
  const ChipTensor& ext_b = orch_args.tensor(1).ref();
  const ChipTensor& ext_f = orch_args.tensor(2).ref();
  const float second = from_u64<float>(orch_args.scalar(0));

  uint32_t inter_shapes[1] = {ext_a.shapes[0]};
  TensorCreateInfo inter_ci(inter_shapes, 1, DataType::FLOAT32);

  CoreTaskArgs sum_args;
  sum_args.add_input(ext_a, ext_b);
  sum_args.add_output(inter_ci);
  TaskOutputTensors sum_outs = rt_submit_aiv_task(0, sum_args);
  const ChipTensor& c = sum_outs.get_ref(0);

  PTO2_SCOPE() {
    CoreTaskArgs first_args;
    first_args.add_input(c);
    first_args.add_output(inter_ci);
    first_args.add_scalar(1.0f);
    const ChipTensor& d = rt_submit_aiv_task(1, first_args).get_ref(0);

    CoreTaskArgs second_args;
    second_args.add_input(c);
    second_args.add_output(inter_ci);
    second_args.add_scalar(second);
    const ChipTensor& e = rt_submit_aiv_task(1, second_args).get_ref(0);

    CoreTaskArgs product_args;
    product_args.add_input(d, e);
    product_args.add_output(ext_f);
    rt_submit_aic_task(2, product_args);
  }
  LOG_INFO("submitted %d tasks", 4);
}
}
