// One program for each mistake that the interface of August 2026 names. The only scalar selects it.
#include <stdexcept>

#include "pto_arg_with_deps.h"
#include "pto_orchestration_api.h"

namespace {

constexpr int32_t kScale = 0;

void scale(const ChipTensor& from, const ChipTensor& to) {
  CoreTaskArgs args;
  args.add_input(from);
  args.add_output(to);
  args.add_scalar(1.0f, 0.0f);
  rt_submit_aiv_task(kScale, args);
}

TaskOutputTensors allocate(uint32_t elements) {
  const TensorCreateInfo info(&elements, 1);
  return alloc_tensors(info);
}

void tensors_33(const ChipTensor& in, const ChipTensor&) {
  CoreTaskArgs args;
  for (int i = 0; i < 33; ++i) args.add_input(in);
  rt_submit_aiv_task(kScale, args);
}

void scalars_17(const ChipTensor&, const ChipTensor&) {
  CoreTaskArgs args;
  for (int i = 0; i < 17; ++i) args.add_scalar(i);
  rt_submit_aiv_task(kScale, args);
}

void dependencies_3_of_2(const ChipTensor&, const ChipTensor&) {
  const PTO2TaskId id = allocate(4).task_id();
  CoreTaskArgsWithDeps<2> args;
  args.add_dep(id, id, id);
  rt_submit_dummy_task(args);
}

void dependencies_twice(const ChipTensor&, const ChipTensor&) {
  const PTO2TaskId id = allocate(4).task_id();
  CoreTaskArgs args;
  args.set_dependencies(&id, 1);
  args.set_dependencies(&id, 1);
  rt_submit_dummy_task(args);
}

void dependency_of_ring_5(const ChipTensor&, const ChipTensor&) {
  const PTO2TaskId id = {allocate(4).task_id().raw | uint64_t{5} << 32};
  CoreTaskArgs args;
  args.set_dependencies(&id, 1);
  rt_submit_dummy_task(args);
}

void expired_results(const ChipTensor& in, const ChipTensor& out) {
  TaskOutputTensors made;
  PTO2_SCOPE() {
    made = allocate(128);
  }
  PTO2_SCOPE() {
    scale(in, made.get_ref(0));
    scale(in, out);
  }
}

void expired_tensor(const ChipTensor& in, const ChipTensor&) {
  const ChipTensor* kept = nullptr;
  PTO2_SCOPE() {
    kept = &allocate(128).get_ref(0);
  }
  scale(in, *kept);
}

void result_1_of_1(const ChipTensor& in, const ChipTensor&) {
  scale(in, allocate(128).get_ref(1));
}

void scope_left_open(const ChipTensor& in, const ChipTensor& out) {
  rt_scope_begin();
  scale(in, out);
}

void scope_ended_twice(const ChipTensor&, const ChipTensor&) {
  rt_scope_begin();
  rt_scope_end();
  rt_scope_end();
}

void scopes_64(const ChipTensor& in, const ChipTensor& out) {
  for (int depth = 0; depth < 64; ++depth) rt_scope_begin();
  scale(in, out);
  for (int depth = 0; depth < 64; ++depth) rt_scope_end();
}

// The refused scope must not end the scope of `made`.
void auto_in_manual(const ChipTensor& in, const ChipTensor&) {
  PTO2_SCOPE(PTO2ScopeMode::MANUAL) {
    const TaskOutputTensors made = allocate(128);
    PTO2_SCOPE() {
      scale(in, made.get_ref(0));
    }
    scale(in, made.get_ref(0));
  }
}

void unknown_kernel(const ChipTensor& in, const ChipTensor&) {
  CoreTaskArgs args;
  args.add_input(in);
  rt_submit_aiv_task(77, args);
}

void no_kernels(const ChipTensor& in, const ChipTensor&) {
  CoreTaskArgs args;
  args.add_input(in);
  rt_submit_task(MixedKernels{}, args);
}

void no_blocks(const ChipTensor& in, const ChipTensor&) {
  CoreTaskArgs args;
  args.add_input(in);
  args.launch_spec.set_block_num(0);
  rt_submit_aiv_task(kScale, args);
}

void blocks_1000(const ChipTensor& in, const ChipTensor&) {
  CoreTaskArgs args;
  args.add_input(in);
  args.launch_spec.set_block_num(1000);
  rt_submit_aiv_task(kScale, args);
}

void predicate_of_float(const ChipTensor& in, const ChipTensor&) {
  CoreTaskPredicate predicate;
  predicate.operand = {in, 2, {0, 0}};
  predicate.op = PredicateOp::EQ;
  CoreTaskArgs args;
  args.add_input(in);
  args.set_predicate(predicate);
  rt_submit_aiv_task(kScale, args);
}

void element_outside(const ChipTensor& in, const ChipTensor&) {
  const uint32_t indices[] = {8, 0};
  get_tensor_data<float>(in, 2, indices);
}

void full_window(const ChipTensor&, const ChipTensor&) {
  for (int i = 0; i < 40; ++i) rt_submit_dummy_task(CoreTaskArgs());
}

// The scopes of depth 3 and deeper share a ring.
void full_window_of_outer_scope(const ChipTensor& in, const ChipTensor& out) {
  for (int depth = 0; depth < 3; ++depth) rt_scope_begin();
  for (int i = 0; i < 20; ++i) rt_submit_dummy_task(CoreTaskArgs());
  PTO2_SCOPE() {
    full_window(in, out);
  }
  for (int depth = 0; depth < 3; ++depth) rt_scope_end();
}

void full_heap(const ChipTensor&, const ChipTensor&) {
  for (int i = 0; i < 10; ++i) allocate(2048);
}

void too_large_output(const ChipTensor&, const ChipTensor&) {
  allocate(1 << 20);
}

void dependencies_20(const ChipTensor&, const ChipTensor&) {
  PTO2TaskId ids[20];
  for (PTO2TaskId& id : ids) id = rt_submit_dummy_task(CoreTaskArgs()).task_id();
  CoreTaskArgs args;
  args.set_dependencies(ids, 20);
  rt_submit_dummy_task(args);
}

void full_tensor_map(const ChipTensor&, const ChipTensor&) {
  for (int i = 0; i < 20; ++i) allocate(4);
}

void throws(const ChipTensor&, const ChipTensor&) {
  throw std::runtime_error("no more");
}

void expired_operand(const ChipTensor& in, const ChipTensor&) {
  const uint32_t one[] = {1};
  const TensorCreateInfo info(one, 1, DataType::INT32);
  CoreTaskPredicate predicate;
  PTO2_SCOPE() {
    predicate.operand = {alloc_tensors(info).get_ref(0), 1, {0}};
  }
  predicate.op = PredicateOp::EQ;
  CoreTaskArgs args;
  args.add_input(in);
  args.set_predicate(predicate);
  rt_submit_aiv_task(kScale, args);
}

// The line of each mistake has the comment HERE.

void graph_leaves_a_scope_open(const ChipTensor& in, const ChipTensor&) {
  GraphTaskArgs args;
  args.add_input(in);
  const auto body = [](const GraphTaskArgs&) {
    rt_scope_begin();  // HERE
  };
  rt_submit_graph(body, args);
}

void graph_ends_a_scope_twice(const ChipTensor& in, const ChipTensor&) {
  GraphTaskArgs args;
  args.add_input(in);
  const auto body = [](const GraphTaskArgs&) {
    rt_scope_begin();
    rt_scope_end();
    rt_scope_end();  // HERE
  };
  PTO2_SCOPE() {
    rt_submit_graph(GRAPH_KEY("ends"), body, args);
  }
}

void graph_creates_a_tensor(const ChipTensor& in, const ChipTensor&) {
  const TensorCreateInfo info(in.shapes, in.ndims);
  GraphTaskArgs args;
  args.add_input(in);
  args.add_output(info);
  const auto body = [](const GraphTaskArgs&) {};
  rt_submit_graph(body, args);  // HERE
}

constexpr void (*kMistakes[])(const ChipTensor&, const ChipTensor&) = {tensors_33,
                                                                       scalars_17,
                                                                       dependencies_3_of_2,
                                                                       dependencies_twice,
                                                                       dependency_of_ring_5,
                                                                       expired_results,
                                                                       expired_tensor,
                                                                       result_1_of_1,
                                                                       scope_left_open,
                                                                       scope_ended_twice,
                                                                       scopes_64,
                                                                       auto_in_manual,
                                                                       unknown_kernel,
                                                                       no_kernels,
                                                                       no_blocks,
                                                                       blocks_1000,
                                                                       predicate_of_float,
                                                                       element_outside,
                                                                       full_window,
                                                                       full_window_of_outer_scope,
                                                                       full_heap,
                                                                       too_large_output,
                                                                       dependencies_20,
                                                                       full_tensor_map,
                                                                       throws,
                                                                       expired_operand,
                                                                       graph_leaves_a_scope_open,
                                                                       graph_ends_a_scope_twice,
                                                                       graph_creates_a_tensor};

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs& args) {
  return {args.tensor_count() == 2 ? 3 : 4};
}

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
  const auto mistake = from_u64<size_t>(args.scalar(0));
  const ChipTensor& in = args.tensor(0).ref();
  const ChipTensor& out = args.tensor(1).ref();
  if (mistake == sizeof kMistakes / sizeof *kMistakes) return scale(in, args.tensor(2).ref());
  kMistakes[mistake](in, out);
}
