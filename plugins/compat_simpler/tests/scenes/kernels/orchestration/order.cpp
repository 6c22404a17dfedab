// One program for each mode: a barrier, predicates, memory that is reused, and allocations.
#include "pto_orchestration_api.h"

#define FUNC_DOUBLE_AND_ADD 0

namespace {

// A dummy task waits for four chains of tasks, and one task waits for the dummy task.
void barrier(const ChipTensor& x) {
  PTO2_SCOPE(PTO2ScopeMode::MANUAL) {
    PTO2TaskId ids[4];
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t shapes[2] = {1, x.shapes[1]};
      const uint32_t offsets[2] = {i, 0};
      const ChipTensor row = x.view(shapes, offsets, true);
      for (int step = 0; step < 4; ++step) {
        CoreTaskArgs args;
        args.add_inout(row);
        args.add_scalar(uint64_t{1} << i);
        if (step > 0) args.set_dependencies(&ids[i], 1);
        ids[i] = rt_submit_aiv_task(FUNC_DOUBLE_AND_ADD, args).task_id();
      }
    }
    CoreTaskArgs dummy;
    dummy.set_dependencies(ids, 4);
    const PTO2TaskId reached = rt_submit_dummy_task(dummy).task_id();
    CoreTaskArgs args;
    args.add_inout(x);
    args.add_scalar(uint64_t{100});
    args.set_dependencies(&reached, 1);
    rt_submit_aiv_task(FUNC_DOUBLE_AND_ADD, args);
  }
}

// Task n doubles and adds 2 to the power of n, if the number that another task writes fits.
void predicates(const ChipTensor& x) {
  const uint32_t one[1] = {1};
  TensorCreateInfo info(one, 1, DataType::INT32);
  info.set_initial_value(int32_t{1});
  CoreTaskArgs write;
  write.add_output(info);
  write.add_scalar(int32_t{1});
  TaskOutputTensors written = rt_submit_aiv_task(FUNC_DOUBLE_AND_ADD, write);
  uint64_t number = 1;
  for (PredicateOp op : {PredicateOp::NONE, PredicateOp::EQ, PredicateOp::NE, PredicateOp::GT,
                         PredicateOp::LT, PredicateOp::GE, PredicateOp::LE}) {
    CoreTaskPredicate predicate{};
    predicate.operand.tensor = written.get_ref(0);
    predicate.operand.ndims = 1;
    predicate.op = op;
    predicate.target = 3;
    CoreTaskArgs args;
    args.add_inout(x);
    args.add_scalar(number);
    args.set_predicate(predicate);
    rt_submit_aiv_task(FUNC_DOUBLE_AND_ADD, args);
    number *= 2;
  }
}

// Each tensor needs more than half of a small heap, which is empty between the scopes.
void reuse() {
  const uint32_t shapes[1] = {10240};
  TensorCreateInfo info(shapes, 1);
  info.set_initial_value(1.0f);
  for (int i = 0; i < 12; ++i) {
    PTO2_SCOPE() {
      CoreTaskArgs args;
      args.add_output(info);
      args.add_scalar(uint64_t{1});
      TaskOutputTensors outputs = rt_submit_aiv_task(FUNC_DOUBLE_AND_ADD, args);
      const uint32_t last[1] = {shapes[0] - 1};
      if (get_tensor_data<float>(outputs.get_ref(0), 1, last) != 3.0f) {
        rt_report_fatal(PTO2_ERROR_EXPLICIT_ORCH_FATAL, "round %d is wrong", i);
      }
    }
  }
}

void allocations(const ChipTensor& counts) {
  const uint32_t shapes[2] = {2, 16};
  TensorCreateInfo list[2] = {TensorCreateInfo(shapes, 2), TensorCreateInfo(shapes, 2)};
  list[0].set_initial_value(0.0f);
  TaskOutputTensors two = alloc_tensors(list, 2);
  CoreTaskArgs args;
  args.add_output(list[1]);
  TaskOutputTensors one = alloc_tensors(args);
  args.reset();
  args.add_inout(two.get_ref(0));
  args.add_scalar(uint64_t{5});
  args.dump(two.get_ref(0));
  args.set_task_timing_slot(0);
  rt_submit_aiv_task(FUNC_DOUBLE_AND_ADD, args);
  const uint32_t corner[2] = {1, 15};
  const int32_t values[4] = {
      static_cast<int32_t>(rt_available_cluster_count()),
      static_cast<int32_t>(rt_available_aiv_count()),
      static_cast<int32_t>(100 * two.size() + one.size()),
      static_cast<int32_t>(get_tensor_data<float>(two.get_ref(0), 2, corner)),
  };
  for (uint32_t i = 0; i < 4; ++i) set_tensor_data<int32_t>(counts, 1, &i, values[i]);
}

}  // namespace

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& orch_args) {
  const ChipTensor& x = orch_args.tensor(0).ref();
  switch (from_u64<int>(orch_args.scalar(0))) {
    case 0:
      barrier(x);
      break;
    case 1:
      predicates(x);
      break;
    case 2:
      reuse();
      break;
    default:
      allocations(orch_args.tensor(1).ref());
      break;
  }
}
