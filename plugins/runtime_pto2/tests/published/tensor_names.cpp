// A published source that describes, compares and checks its tensors, and makes calls through
// rt->ops.
#include "pto_orchestration_api.h"

#define FUNC_COPY 0

static_assert(PTO2_NUM_WORKER_TYPES == 4, "the number of worker types is published");

static std::vector<std::string> lines;

static void describe(PTO2Runtime* rt, const char* name, Tensor& tensor) {
  std::string text = std::string(name) + ": " + tensor.dump();
  lines.push_back(tensor.data().dump());
  LOG_INFO(rt, "%s (index %d)", text.c_str(), tensor.index);
}

static int check_tensors(PTO2Runtime* rt, Tensor& in, Tensor& out) {
  uint64_t half[1] = {in.data().shapes[0] / 2};
  uint64_t first[1] = {0};
  uint64_t second[1] = {half[0]};
  Tensor low = in.view(half, first);
  Tensor high = in.view(half, second);
  uint64_t square[2] = {2, half[0]};
  describe(rt, "low", low);
  if (low.is_overlap(high) || !low.is_overlap(in) || in.is_overlap(out)) return 1;
  if (!in.valid_reshape(square, 2) || in.valid_reshape(half, 1)) return 2;
  if (in.valid_transpose(0, 1) || !in.reshape(square, 2).valid_transpose(0, 1)) return 3;
  if (in.reshape(square, 2).transpose(0, 1).valid_reshape(square, 1)) return 4;
  Tensor again = in;
  if (again.index != in.index || low.index == high.index || Tensor().index != -1) return 5;
  Tensor pending = make_tensor(half, 1);
  Tensor other = make_tensor(half, 1);
  if (pending.is_overlap(other) || !pending.is_overlap(pending.copy())) return 6;
  uint64_t raw[2] = {8, 4}, shapes[2] = {2, 4}, offsets[2] = {3, 0};
  TensorData data((void*)0x1000, 128, raw, shapes, offsets, 2, DataType::FLOAT32, 7);
  if (data.numel() != 8 || !data.is_contiguous() || data.start_offset != 12) return 7;
  if (data.version != 7 || data.buffer.size != 128 || data.raw_shapes[0] != 8) return 8;
  const char* expected =
      "TensorData{addr=0x1000, size=128 bytes, raw_shapes=[8, 4], shapes=[2, 4], offsets=[3, 0], "
      "start_offset=12, ndims=2, dtype=FLOAT32, version=7}";
  if (strcmp(data.dump().c_str(), expected) != 0) {
    printf("%s\n", data.dump().c_str());
    return 9;
  }
  always_assert(lines.size() >= 1);
  debug_assert(memcmp(raw, shapes, 0) == 0);
  return 0;
}

extern "C" {

PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  return PTO2OrchestrationConfig{3};
}

int aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const PTO2RuntimeOps* ops = rt->ops;
  ops->init_tensor_pool(rt);
  uint64_t shapes[1] = {args[2]};
  Tensor in = make_tensor_external((void*)args[0], shapes, 1);
  Tensor out = make_tensor_external((void*)args[1], shapes, 1);
  int wrong = check_tensors(rt, in, out);
  rt->ops->scope_begin(rt);
  PTOParam params[] = {make_input_param(in), make_output_param(out)};
  rt->ops->submit_task(rt, FUNC_COPY, PTO2_WORKER_VECTOR, params, 2);
  rt->ops->scope_end(rt);
  ops->log_info(rt, __func__, "submitted %d task", 1);
  ops->orchestration_done(rt);
  return wrong;
}
}
