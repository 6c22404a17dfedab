// A source like the smallest published programs: pointers, sizes, one scope, one diamond.
#include <stddef.h>
#include <stdint.h>

#include "pto_orchestration_api.h"

#define FUNC_ADD 0
#define FUNC_ADD_SCALAR 1
#define FUNC_MUL 2

#define ARG_PTR_A 0
#define ARG_PTR_B 1
#define ARG_PTR_F 2
#define ARG_SIZE 3

static uint64_t float_to_u64(float f) {
  union {
    float f32;
    uint64_t u64;
  } conv;
  conv.u64 = 0;
  conv.f32 = f;
  return conv.u64;
}

extern "C" {

__attribute__((visibility("default"))) PTO2OrchestrationConfig
aicpu_orchestration_config(uint64_t* args, int arg_count) {
  (void)args;
  (void)arg_count;
  return PTO2OrchestrationConfig{
      .expected_arg_count = 4,
  };
}

__attribute__((visibility("default"))) void aicpu_orchestration_entry(PTO2Runtime* rt,
                                                                      uint64_t* args,
                                                                      int arg_count) {
  pto2_rt_init_tensor_pool(rt);

  void* a_ptr = (void*)(uintptr_t)args[ARG_PTR_A];
  void* b_ptr = (void*)(uintptr_t)args[ARG_PTR_B];
  void* f_ptr = (void*)(uintptr_t)args[ARG_PTR_F];
  int SIZE = (int)(args[ARG_SIZE] & 0x7FFFFFFF);

  LOG_INFO(rt, "vector example");
  LOG_INFO(rt, "SIZE=%d", SIZE);

  uint64_t shapes[1] = {(uint64_t)SIZE};
  Tensor ext_a = make_tensor_external(a_ptr, shapes, 1, DataType::FLOAT32);
  Tensor ext_b = make_tensor_external(b_ptr, shapes, 1, DataType::FLOAT32);
  Tensor ext_f = make_tensor_external(f_ptr, shapes, 1, DataType::FLOAT32);

  PTO2_SCOPE(rt) {
    Tensor c = make_tensor(shapes, 1, DataType::FLOAT32);
    Tensor d = make_tensor(shapes, 1, DataType::FLOAT32);
    Tensor e = make_tensor(shapes, 1, DataType::FLOAT32);

    PTOParam params_t0[] = {
        make_input_param(ext_a),
        make_input_param(ext_b),
        make_output_param(c),
    };
    pto2_rt_submit_task(rt, FUNC_ADD, PTO2_WORKER_VECTOR, params_t0, 3);

    PTOParam params_t1[] = {
        make_input_param(c),
        make_scalar_param(float_to_u64(1.0f)),
        make_output_param(d),
        make_scalar_param((uint64_t)3),
    };
    pto2_rt_submit_task(rt, FUNC_ADD_SCALAR, PTO2_WORKER_VECTOR, params_t1, 4);

    PTOParam params_t2[4];
    params_t2[0] = make_input_param(c);
    params_t2[1] = make_scalar_param(float_to_u64(2.0f));
    params_t2[2] = make_output_param(e);
    params_t2[3] = make_scalar_param(3);
    pto2_rt_submit_task(rt, FUNC_ADD_SCALAR, PTO2_WORKER_VECTOR, params_t2, 4);

    PTOParam params_t3[] = {make_input_param(d), make_input_param(e), make_output_param(ext_f)};
    pto2_rt_submit_task(rt, FUNC_MUL, PTO2_WORKER_VECTOR, params_t3,
                        sizeof(params_t3) / sizeof(params_t3[0]));
  }
}

}  // extern "C"
