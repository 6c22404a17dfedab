// Orchestration entries that call the interface as published sources do, without the wrapper; one
// entry for each feature of a runtime. Arguments: the addresses of `in` and `out`, and their number
// of floats. Function 0 (vector): out = in + constant. Function 1 (cube): out = left * right.
#include <stdexcept>
#include <vector>

#include "pto/engine/orchestration_entry.hpp"
#include "pto_orchestration_api.h"

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t* args, int arg_count) {
  (void)args;
  (void)arg_count;
  return PTO2OrchestrationConfig{3};
}

static Tensor argument(uint64_t* args, int index) {
  const uint64_t shapes[1] = {args[2]};
  return make_tensor_external(reinterpret_cast<void*>(args[index]), shapes, 1);
}

static void add(PTO2Runtime* rt, Tensor& in, Tensor& out, uint64_t constant) {
  PTOParam params[] = {make_input_param(in), make_output_param(out), make_scalar_param(constant)};
  pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 3);
}

static void multiply(PTO2Runtime* rt, Tensor& left, Tensor& right, Tensor& out) {
  PTOParam params[] = {make_input_param(left), make_input_param(right), make_output_param(out)};
  pto2_rt_submit_task(rt, 1, PTO2_WORKER_CUBE, params, 3);
}

static void make_diamond(PTO2Runtime* rt, uint64_t* args) {
  Tensor in = argument(args, 0);
  Tensor out = argument(args, 1);
  const uint64_t shapes[1] = {args[2]};
  Tensor left = make_tensor(shapes, 1);
  Tensor right = make_tensor(shapes, 1);
  add(rt, in, left, 1);
  add(rt, in, right, 2);
  multiply(rt, left, right, out);
}

// Computes (x + 1) * (x + 2) for every x.
extern "C" void diamond(PTO2Runtime* rt, uint64_t* args, int arg_count) {
  (void)arg_count;
  pto2_rt_init_tensor_pool(rt);
  PTO2_SCOPE(rt) {
    make_diamond(rt, args);
  }
}

// Computes the same, as a C++ function that returns int and calls pto2_rt_orchestration_done.
int diamond_int(PTO2Runtime* rt, uint64_t* args, int) {
  make_diamond(rt, args);
  pto2_rt_orchestration_done(rt);
  return 0;
}

// Computes the same on views of the four quarters, and then reads the whole buffer in one task.
extern "C" void diamond_of_views(PTO2Runtime* rt, uint64_t* args, int) {
  Tensor in = argument(args, 0);
  Tensor out = argument(args, 1);
  const uint64_t shapes[1] = {args[2]};
  const uint64_t quarter[1] = {args[2] / 4};
  PTO2_SCOPE(rt) {
    Tensor left;
    Tensor right;
    left = make_tensor(shapes, 1);
    right = make_tensor(shapes, 1);
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t offsets[1] = {i * quarter[0]};
      Tensor from = in.view(quarter, offsets);
      Tensor to_left = left.view(quarter, offsets);
      Tensor to_right = right.view(quarter, offsets);
      add(rt, from, to_left, 1);
      add(rt, from, to_right, 2);
    }
    multiply(rt, left, right, out);
  }
}

// Computes in + 1000 with a chain of tasks on one accumulator. Each scope contains 100 tasks.
extern "C" void long_chain(PTO2Runtime* rt, uint64_t* args, int) {
  Tensor in = argument(args, 0);
  Tensor out = argument(args, 1);
  add(rt, in, out, 0);
  for (int i = 0; i < 10; ++i) {
    PTO2_SCOPE_GUARD(rt);
    for (int j = 0; j < 100; ++j) {
      PTOParam params[] = {make_inout_param(out), make_no_dep_param(out), make_scalar_param(1)};
      pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 3);
    }
  }
}

// Computes in + 1 + 2 on one cluster. A pipe and an explicit edge order the tasks.
extern "C" void clustered(PTO2Runtime* rt, uint64_t* args, int) {
  Tensor in = argument(args, 0);
  Tensor out = argument(args, 1);
  Tensor pipe = make_pipe_tensor();
  PTO2_SCOPE(rt) {
    const int32_t cluster = pto2_rt_allocate_cluster(rt);
    PTOParam first[] = {make_input_param(in), make_output_existing_param(out), make_scalar_param(1),
                        make_output_param(pipe)};
    const int64_t one = pto2_rt_submit_task_clustered(rt, 0, PTO2_WORKER_VECTOR, first, 4, cluster);
    PTOParam second[] = {make_no_dep_param(out), make_no_dep_param(out), make_scalar_param(2),
                         make_input_param(pipe)};
    const int64_t two =
        pto2_rt_submit_task_clustered(rt, 0, PTO2_WORKER_VECTOR, second, 4, cluster);
    pto2_rt_add_dep(rt, one, two);
    pto2_rt_free_cluster(rt, cluster);
  }
}

// Submits block tasks. Function 2 (vector) receives (in, out, block_dim, block_id) and writes its
// part of out = in + 1.
extern "C" void blocks(PTO2Runtime* rt, uint64_t* args, int) {
  Tensor in = argument(args, 0);
  Tensor out = argument(args, 1);
  const uint64_t shapes[1] = {args[2]};
  Tensor between = make_tensor(shapes, 1);
  PTOParam params[] = {make_input_param(in), make_output_param(between)};
  pto2_rt_submit_block_task(rt, 2, PTO2_WORKER_VECTOR, params, 2, 4);
  std::vector<int32_t> clusters;
  for (int i = 0; i < 4; ++i) clusters.push_back(pto2_rt_allocate_cluster(rt));
  PTOParam again[] = {make_input_param(between), make_output_param(out)};
  pto2_rt_submit_block_task(rt, 2, PTO2_WORKER_VECTOR, again, 2, 4, clusters.data());
}

extern "C" void logs(PTO2Runtime* rt, uint64_t*, int arg_count) {
  LOG_ERROR(rt, "an error with %d arguments", arg_count);
  LOG_WARN(rt, "a warning");
  LOG_INFO(rt, "some information");
  LOG_DEBUG(rt, "a detail");
  LOG_ALWAYS(rt, "a line at every level");
}

// --- Endings that are errors --------------------------------------------------------------------

extern "C" int returns_seven(PTO2Runtime* rt, uint64_t* args, int) {
  make_diamond(rt, args);
  return 7;
}

extern "C" void throws(PTO2Runtime* rt, uint64_t* args, int) {
  PTO2_SCOPE(rt) {
    make_diamond(rt, args);
    throw std::runtime_error("no luck");
  }
}

// Continues after an error: the first error is reported, and all calls after it do nothing.
extern "C" int ignores_errors(PTO2Runtime* rt, uint64_t* args, int) {
  Tensor nowhere = make_tensor(args + 2, 1);
  PTOParam params[] = {make_input_param(nowhere)};
  if (pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 1) != -1) return 1;
  make_diamond(rt, args);
  pto2_rt_scope_end(rt);
  pto2_rt_free_cluster(rt, 99);
  return pto2_rt_allocate_cluster(rt) == -1 ? 0 : 2;
}

extern "C" void view_out_of_bounds(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t offsets[1] = {1};
  Tensor part = argument(args, 0).view(args + 2, offsets);
  add(rt, part, part, 1);
}

extern "C" void submits_after_done(PTO2Runtime* rt, uint64_t* args, int) {
  make_diamond(rt, args);
  pto2_rt_orchestration_done(rt);
  make_diamond(rt, args);
}

extern "C" void says_done_twice(PTO2Runtime* rt, uint64_t*, int) {
  pto2_rt_orchestration_done(rt);
  pto2_rt_orchestration_done(rt);
}

extern "C" void ends_no_scope(PTO2Runtime* rt, uint64_t*, int) {
  pto2_rt_scope_begin(rt);
  pto2_rt_scope_end(rt);
  pto2_rt_scope_end(rt);
}

extern "C" void leaves_a_scope_open(PTO2Runtime* rt, uint64_t*, int) {
  pto2_rt_scope_begin(rt);
}

// For tests/native/orchestrations.cmake: the entry of each library, and a function of its type for
// each entry above.
extern "C" __attribute__((visibility("hidden"))) int selected_entry(PTO2Runtime* rt, uint64_t* args,
                                                                    int arg_count);

#define ENTRY(name)                                                            \
  extern "C" int call_##name(PTO2Runtime* rt, uint64_t* args, int arg_count) { \
    return pto_orchestration::call_entry(&name, rt, args, arg_count);          \
  }
