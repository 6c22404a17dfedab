// A tour of the interface of August 2026: views, a tensor with manual_dep, alloc_tensors, a mixed
// task, blocks, a predicate, and a MANUAL scope with a dummy task and NO_DEP. `defect` plants one.
#include "pto_arg_with_deps.h"
#include "pto_orchestration_api.h"

namespace {

enum Kernel { kScale = 0, kRows = 1, kLane = 2, kCube = 3 };
enum Defect {
  kNone = 0,
  kOverwritesEarly = 1,
  kEdgeIsMissing = 2,
  kWrongFactor = 3,
  kDoesNotFit = 4,
  kHostWrites = 5,
  kHostReads = 6,
  kCrashes = 7,
  kCrashesBesideOthers = 8,
  kHostSetsInputs = 9
};

PTO2TaskId scale(const ChipTensor& from, const ChipTensor& to, float factor) {
  CoreTaskArgs args;
  args.add_input(from);
  args.add_output(to);
  args.add_scalar(factor, 0.0f);
  return rt_submit_aiv_task(kScale, args).task_id();
}

PTO2TaskId change_in_place(const ChipTensor& data, const ChipTensor& flags, Defect defect) {
  CoreTaskArgs mixed;
  mixed.add_inout(data);
  mixed.add_scalar(defect == kCrashes || defect == kCrashesBesideOthers, defect == kCrashes);
  rt_submit_task(MixedKernels{kCube, kLane, kLane}, mixed);
  CoreTaskArgs rows;
  rows.add_inout(data);
  rows.add_no_dep(flags);
  rows.launch_spec.set_block_num(8);
  rt_submit_aiv_task(kRows, rows);
  CoreTaskPredicate is_set;
  is_set.operand = {flags, 1, {1}};
  is_set.op = PredicateOp::EQ;
  is_set.target = -3;
  CoreTaskArgs doubled;
  doubled.add_inout(data, data);
  doubled.add_scalar(2.0f, 0.0f);
  doubled.set_predicate(is_set);
  return rt_submit_aiv_task(kScale, doubled).task_id();
}

void write_out(const ChipTensor& data, const ChipTensor& out, PTO2TaskId changed, Defect defect) {
  PTO2_SCOPE(PTO2ScopeMode::MANUAL) {
    const TensorCreateInfo info(data.shapes, data.ndims);
    CoreTaskArgs copy;
    copy.add_input(data);
    copy.add_output(info);
    copy.add_scalar(1.0f, 1.0f);
    if (defect != kEdgeIsMissing) copy.set_dependencies(&changed, 1);
    const TaskOutputTensors copied = rt_submit_aiv_task(kScale, copy);
    CoreTaskArgsWithDeps<> barrier;
    barrier.add_dep_wait(copied.task_id());
    const PTO2TaskId reached = rt_submit_dummy_task(barrier).task_id();
    CoreTaskArgs write;
    write.add_input(copied.get_ref(0));
    write.add_output(out);
    write.add_scalar(1.0f, 0.0f);
    const PTO2TaskId both[] = {reached, copied.task_id()};
    const DepFlags kinds[] = {DEP_WAIT, DEP_RETAIN};
    write.set_dependencies_with_kinds(both, kinds, 2);
    const PTO2TaskId written = rt_submit_aiv_task(kScale, write).task_id();
    CoreTaskArgs last;
    last.add_inout(out, out);
    last.add_scalar(defect == kWrongFactor ? 3.0f : 2.0f, 0.0f);
    last.set_dependencies(&written, 1);
    rt_submit_aiv_task(kScale, last);
  }
}

void fill_the_heap(const ChipTensor& values) {
  const TensorCreateInfo info(values.shapes, values.ndims);
  for (int i = 0; i < 100; ++i) alloc_tensors(info);
}

}  // namespace

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
  const ChipTensor& values = args.tensor(0).ref();
  const ChipTensor& out = args.tensor(1).ref();
  const auto defect = from_u64<Defect>(args.scalar(0));
  const uint32_t two[] = {2};
  const uint32_t half[] = {8, 8};
  const uint32_t left[] = {0, 0};
  const uint32_t right[] = {0, 8};
  const TensorCreateInfo info(values.shapes, values.ndims);
  const TensorCreateInfo stated(values.shapes, values.ndims, DataType::FLOAT32, true);
  TensorCreateInfo flags(two, 1, DataType::INT32);
  flags.set_initial_value(int32_t{-3});
  const TaskOutputTensors made = alloc_tensors(info, flags);
  const ChipTensor& data = made.get_ref(0);
  if (defect == kHostSetsInputs) {
    set_tensor_data<float>(values.view(half, left), 2, left, 100);
    set_tensor_data<float>(values.view(half, right), 2, left, 200);
  }
  CoreTaskArgs doubled;
  doubled.add_input(values);
  doubled.add_output(stated);
  doubled.add_scalar(2.0f, 0.0f);
  const TaskOutputTensors twice = rt_submit_aiv_task(kScale, doubled);
  const ChipTensor data_left = data.view(half, left);
  scale(twice.get_ref(0).view(half, left, true), data_left, 0.5f);
  scale(twice.get_ref(0).view(half, right, true), data.view(half, right), 0.5f);
  write_out(data, out, change_in_place(data, made.get_ref(1), defect), defect);
  const uint32_t first[] = {0, 0};
  if (defect == kHostWrites) set_tensor_data<float>(data, 2, first, 1);
  if (defect == kHostReads) get_tensor_data<float>(out, 2, first);
  if (defect == kOverwritesEarly || defect == kHostWrites)
    scale(values.view(half, left), data_left, 1);
  if (defect == kDoesNotFit) fill_the_heap(values);
}
