// One program for each group of calls of the interface of August 2026. Each writes `out` from `in`,
// two tensors of 8 x 16 floats. The only scalar selects the program.
#include "pto_arg_with_deps.h"
#include "pto_orchestration_api.h"

namespace {

enum Kernel { kScale = 0, kAdd = 1, kBlocks = 2, kLane = 3, kLaneOfCube = 4 };

void scale(const ChipTensor& from, const ChipTensor& to, float factor, float summand) {
  CoreTaskArgs args;
  args.add_input(from);
  args.add_output(to);
  args.add_scalar(factor, summand);
  rt_submit_aiv_task(kScale, args);
}

const ChipTensor& scaled(const ChipTensor& from, float factor, float summand) {
  const TensorCreateInfo info(from.shapes, from.ndims, from.dtype);
  CoreTaskArgs args;
  args.add_input(from);
  args.add_output(info);
  args.add_scalar(factor, summand);
  return rt_submit_aiv_task(kScale, args).get_ref(0);
}

void add(const ChipTensor& a, const ChipTensor& b, const ChipTensor& sum) {
  CoreTaskArgs args;
  args.add_input(a, b);
  args.add_output(sum);
  rt_submit_aic_task(kAdd, args);
}

void allocated_outputs(const ChipTensor& in, const ChipTensor& out) {
  const ChipTensor& doubled = scaled(in, 2, 0);
  PTO2_SCOPE() {
    const ChipTensor& more = scaled(doubled, 1, 5);
    add(doubled, more, out);
  }
}

void views(const ChipTensor& in, const ChipTensor& out) {
  const uint32_t half[] = {8, 8};
  const uint32_t left[] = {0, 0};
  const uint32_t right[] = {0, 8};
  const ChipTensor in_left = in.view(half, left);
  const ChipTensor in_right = in.view(half, right);
  const ChipTensor out_left = out.view(half, left);
  const ChipTensor out_right = out.view(half, right);
  scale(in_right, out_left, 1, 0);
  scale(in_left, out_right, 1, 0);
  const ChipTensor even = out_left.slice(1, 0, 8, 2);
  CoreTaskArgs args;
  args.add_inout(even);
  args.add_inout(even);
  args.add_scalar(-1.0f, 0.0f);
  rt_submit_aiv_task(kScale, args);
}

void permuted(const ChipTensor& in, const ChipTensor& out) {
  const uint32_t flat[] = {128};
  const uint32_t turned[] = {16, 8};
  const uint32_t order[] = {1, 0};
  const ChipTensor line = in.reshape(flat, 1);
  const ChipTensor matrix = line.reshape(turned, 2);
  const ChipTensor transposed = matrix.transpose(0, 1);
  const ChipTensor whole = out.permute(order);
  const ChipTensor back = whole.transpose(0, 1);
  scale(transposed, back, 1, 0);
}

void blocks(const ChipTensor&, const ChipTensor& out) {
  CoreTaskArgs args;
  args.add_output(out);
  args.launch_spec.set_block_num(100);
  rt_submit_aiv_task(kBlocks, args);
  args.reset();
  const uint32_t one[] = {1, 16};
  const uint32_t last[] = {7, 0};
  const ChipTensor row = out.view(one, last);
  args.add_inout(row, row);
  args.add_scalar(0.0f, 7.0f);
  rt_submit_aiv_task(kScale, args);
}

void explicit_dependencies(const ChipTensor& in, const ChipTensor& out) {
  PTO2_SCOPE(PTO2ScopeMode::MANUAL) {
    const TensorCreateInfo info(in.shapes, in.ndims);
    CoreTaskArgs first;
    first.add_input(in);
    first.add_output(info);
    first.add_scalar(3.0f, 0.0f);
    const TaskOutputTensors made = rt_submit_aiv_task(kScale, first);
    CoreTaskArgsWithDeps<2> barrier;
    barrier.add_dep_wait(made.task_id());
    const PTO2TaskId reached = rt_submit_dummy_task(barrier).task_id();
    CoreTaskArgs second;
    second.add_input(made.get_ref(0));
    second.add_output(out);
    second.add_scalar(1.0f, 1.0f);
    const PTO2TaskId all[] = {reached, made.task_id()};
    const DepFlags kinds[] = {DEP_WAIT, DEP_RETAIN};
    second.set_dependencies_with_kinds(all, kinds, 2);
    const PTO2TaskId written = rt_submit_aiv_task(kScale, second).task_id();
    CoreTaskArgs third;
    third.add_inout(out);
    third.add_no_dep(out);
    third.add_scalar(2.0f, 0.0f);
    third.set_dependencies(&written, 1);
    third.set_allow_early_resolve();
    rt_submit_aiv_task(kScale, third);
  }
}

void data(const ChipTensor& in, const ChipTensor& out) {
  const uint32_t few[] = {4};
  TensorCreateInfo info(few, 1);
  info.set_initial_value(2.5f);
  TensorCreateInfo rest(in.shapes, in.ndims);
  const TaskOutputTensors made = alloc_tensors(info, rest);
  const uint32_t second[] = {1};
  const float factor = get_tensor_data<float>(made.get_ref(0), 1, second);
  const uint32_t corner[] = {0, 1};
  scale(in, made.get_ref(1), factor, get_tensor_data<float>(in, 2, corner));
  scale(made.get_ref(1), out, 1, 0);
  set_tensor_data<float>(made.get_ref(1), 2, corner, -1);  // waits for both tasks
  if (get_tensor_data<float>(made.get_ref(1), 2, corner) != -1) {
    rt_report_fatal(PTO2_ERROR_EXPLICIT_ORCH_FATAL, "element (%d, %d) is wrong", 0, 1);
  }
}

void clusters(const ChipTensor& in, const ChipTensor& out) {
  const TensorCreateInfo info(in.shapes, in.ndims);
  const TaskOutputTensors made = alloc_tensors(info);
  scale(in, out, 1, 0);
  for (int i = 0; i < 20; ++i) scale(in, made.get_ref(0), 1, 0);
  CoreTaskArgs args;
  args.add_inout(out);
  args.launch_spec.set_block_num(30);
  rt_submit_task(MixedKernels{kLaneOfCube, kLane, kLane}, args);
  for (int i = 0; i < 20; ++i) scale(in, made.get_ref(0), 1, 0);
}

void predicates(const ChipTensor& in, const ChipTensor& out) {
  const uint32_t two[] = {2};
  TensorCreateInfo info(two, 1, DataType::INT32);
  info.set_initial_value(int32_t{-3});
  const TaskOutputTensors made = alloc_tensors(info);
  scale(in, out, 1, 0);
  CoreTaskPredicate predicate;
  predicate.operand = {made.get_ref(0), 1, {1}};
  predicate.target = -3;
  for (const PredicateOp op : {PredicateOp::NE, PredicateOp::GE, PredicateOp::LT}) {
    predicate.op = op;
    CoreTaskArgs args;
    args.add_inout(out, out);
    args.add_scalar(2.0f, 1.0f);
    args.set_predicate(predicate);
    rt_submit_aiv_task(kScale, args);
  }
  CoreTaskArgs blocks;
  predicate.op = PredicateOp::GT;
  blocks.add_inout(out);
  blocks.launch_spec.set_block_num(5);
  blocks.set_predicate(predicate);
  rt_submit_aiv_task(kBlocks, blocks);
  CoreTaskArgs last;
  last.add_inout(out, out);
  last.add_scalar(1.0f, 0.5f);
  rt_submit_aiv_task(kScale, last);
}

void manual_tensor(const ChipTensor& in, const ChipTensor& out) {
  const TensorCreateInfo info(in.shapes, in.ndims, DataType::FLOAT32, true);
  CoreTaskArgs args;
  args.add_input(in);
  args.add_output(info);
  args.add_scalar(4.0f, 0.0f);
  const TaskOutputTensors made = rt_submit_aiv_task(kScale, args);
  scale(made.get_ref(0), out, 1, 0);  // waits for the owner of the memory
}

void counts(const ChipTensor& in, const ChipTensor& out) {
  scale(in, out, 0,
        static_cast<float>(100 * rt_available_cluster_count() + rt_available_aiv_count()));
}

void fatal(const ChipTensor&, const ChipTensor&) {
  rt_report_fatal(PTO2_ERROR_EXPLICIT_ORCH_FATAL, "value %d", 42);
  if (!rt_is_fatal()) std::abort();
}

void outside(const ChipTensor& in, const ChipTensor& out) {
  const uint32_t half[] = {8, 8};
  const uint32_t offsets[] = {0, 9};
  const ChipTensor part = in.view(half, offsets);
  scale(part, out, 1, 0);
}

void scalar_first(const ChipTensor& in, const ChipTensor&) {
  CoreTaskArgs args;
  args.add_scalar(1);
  args.add_input(in);
  rt_submit_aiv_task(kScale, args);
}

void auto_in_manual(const ChipTensor& in, const ChipTensor& out) {
  PTO2_SCOPE(PTO2ScopeMode::MANUAL) {
    PTO2_SCOPE() {
      scale(in, out, 1, 0);
    }
  }
}

void unknown_dependency(const ChipTensor& in, const ChipTensor& out) {
  CoreTaskArgsWithDeps<> args;
  args.add_input(in);
  args.add_output(out);
  args.add_scalar(1.0f, 0.0f);
  args.add_dep(PTO2TaskId::invalid());
  rt_submit_aiv_task(kScale, args);
}

void freed(const ChipTensor& in, const ChipTensor&) {
  const uint32_t corner[] = {0, 0};
  ChipTensor kept = in;
  PTO2_SCOPE() {
    kept = scaled(in, 1, 0);
  }
  get_tensor_data<float>(kept, 2, corner);
}

// The operand is in an inner scope. Its memory is the next one to be used again while the task
// waits.
void kept_operand(const ChipTensor& in, const ChipTensor& out) {
  scale(in, out, 1, 0);
  const uint32_t large[] = {64, 64};
  for (int round = 0; round < 10; ++round) {
    PTO2_SCOPE() {
      const TaskOutputTensors slow = alloc_tensors(TensorCreateInfo(large, 2));
      PTO2TaskId last = slow.task_id();
      for (int i = 0; i < 8; ++i) {
        CoreTaskArgs args;
        args.add_inout(slow.get_ref(0), slow.get_ref(0));
        args.add_scalar(1.0f, 0.0f);
        last = rt_submit_aiv_task(kScale, args).task_id();
      }
      for (int32_t i = 0; i < 8; ++i) {
        PTO2_SCOPE() {
          TensorCreateInfo info(large, 2, DataType::INT32);
          info.set_initial_value(i);
          CoreTaskPredicate predicate;
          const TaskOutputTensors made = alloc_tensors(info);
          predicate.operand = {made.get_ref(0), 2, {0, 0}};
          predicate.op = PredicateOp::EQ;
          CoreTaskArgs args;
          args.add_inout(out, out);
          args.add_scalar(2.0f, 0.0f);
          args.set_dependencies(&last, 1);
          args.set_predicate(predicate);
          if (i == 0) rt_submit_aiv_task(kScale, args);
        }
      }
    }
  }
}

constexpr void (*kPrograms[])(const ChipTensor&, const ChipTensor&) = {
    allocated_outputs,  views,    permuted,   blocks,  explicit_dependencies, data,
    manual_tensor,      counts,   fatal,      outside, scalar_first,          auto_in_manual,
    unknown_dependency, clusters, predicates, freed,   kept_operand};

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs&) {
  return {3};
}

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
  LOG_INFO("program %d of %d", static_cast<int>(args.scalar(0)), args.scalar_count());
  kPrograms[from_u64<int>(args.scalar(0))](args.tensor(0).ref(), args.tensor(1).ref());
}
