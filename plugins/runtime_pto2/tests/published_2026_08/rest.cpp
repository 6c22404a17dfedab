// The names of the interface that no published program of the tests beside this file uses.
#include "pto_orchestration_api.h"

namespace {

void expect(bool is_right, const char* what) {
  if (!is_right) rt_report_fatal(PTO2_ERROR_EXPLICIT_ORCH_FATAL, "wrong: %s", what);
}

void log_lines() {
  LOG_ERROR("level %d", 0);
  LOG_WARN("level %d", 1);
  LOG_TIMING("level %s", "timing");
  LOG_DEBUG("level %d", 3);
}

void check_results(const TaskOutputTensors& made) {
  expect(made.size() == 1 && !made.empty() && TaskOutputTensors().empty(), "size");
  expect(made.task_id().is_valid() && PTO2TaskId::invalid().is_invalid(), "task_id");
  expect(made.task_id() == made.get_ref(0).owner_task_id, "owner_task_id");
}

// A task that is not run, because 3 <= 2 is false.
void submit_skipped(const ChipTensor& out) {
  const uint32_t one[] = {1};
  TensorCreateInfo info(one, 1, DataType::INT64);
  info.set_initial_value(int64_t{3});
  CoreTaskPredicate is_small;
  is_small.operand = {alloc_tensors(info).get_ref(0), 1, {0}};
  is_small.op = PredicateOp::LE;
  is_small.target = 2;
  CoreTaskArgs args;
  args.add_inout(out, out);
  args.set_predicate(is_small);
  rt_submit_aiv_task(0, args);
}

}  // namespace

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
  const ChipTensor& in = args.tensor(0).ref();
  const ChipTensor& out = args.tensor(1).ref();
  log_lines();
  const uint32_t shapes[] = {4, 3};
  const uint32_t strides[] = {32, 2};
  void* memory = in.data_as<float>();
  const ChipTensor external =
      make_tensor_external(memory, in.shapes, in.ndims, in.dtype, true, 7, AddressSpace::DEVICE);
  expect(external.manual_dep && external.version == 7, "make_tensor_external");
  ChipTensor strided = make_tensor_strided(memory, shapes, strides, 2);
  expect(!strided.is_contiguous && strided.buffer.size == 4 * (3 * 32 + 2 * 2 + 1), "strided");
  strided.version = -5;
  const uint64_t wide[] = {40, 41};
  const int32_t narrow[] = {-1, 42};
  CoreTaskArgs first;
  first.add_scalars(wide, 2);
  CoreTaskArgs task;
  PTO2_SCOPE_GUARD(PTO2ScopeMode::MANUAL);
  task.add_input(strided);
  task.add_output(out);
  task.add_scalars(wide, 1);
  task.add_scalars_i32(narrow, 2);
  task.copy_scalars_from(first, 1, 1);
  task.set_task_timing_slot(2);
  task.launch_spec.set_core_num(1);
  task.dump(strided, out);
  rt_submit_aiv_task(0, task);
  const uint32_t four[] = {4};
  const TensorCreateInfo info(four, 1);
  check_results(alloc_tensors(&info, 1));
  submit_skipped(out);
  expect(strided.dump().find("strides=[32, 2]") != std::string::npos, "dump");
  rt_orchestration_done();
}
