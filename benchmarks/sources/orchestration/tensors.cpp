// Graphs of empty kernels whose edges come from their tensors; scopes of 1,024 tasks.
// args: the buffer, then graph, tasks, width.
//   graph 0: task i reads and writes slice i % width of the buffer
//   graph 1: as 0, but task i reads the slice and the last output of its lane, and writes a new
//            output
//   graph 2: paged attention: `tasks` queries of `width` blocks; each query has a scope and a hub
//            task, then QK, SF, PV and UP for every block
//   graph 3: `tasks` blocks of one kernel, with one submit for each `width` of them
//   graph 4: as 3, with one submit for each block
#include <cstdint>
#include <vector>

#include "pto_orchestration_api.h"

namespace {

constexpr uint64_t kScopeTasks = 1024;
constexpr uint64_t kTile = 16;

Tensor slice_of(Tensor& buffer, uint64_t index) {
  const uint64_t shapes[] = {kTile};
  const uint64_t offsets[] = {index * kTile};
  return buffer.view(shapes, offsets);
}

std::vector<Tensor> slices_of(void* memory, uint64_t width) {
  const uint64_t shapes[] = {width * kTile};
  Tensor buffer = make_tensor_external(memory, shapes, 1);
  std::vector<Tensor> slices;
  for (uint64_t i = 0; i < width; ++i) slices.push_back(slice_of(buffer, i));
  return slices;
}

void update_slices(PTO2Runtime* rt, void* memory, uint64_t tasks, uint64_t width) {
  std::vector<Tensor> slices = slices_of(memory, width);
  for (uint64_t first = 0; first < tasks; first += kScopeTasks) {
    PTO2_SCOPE(rt) {
      for (uint64_t i = first; i < tasks && i < first + kScopeTasks; ++i) {
        PTOParam params[] = {make_inout_param(slices[i % width])};
        pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 1);
      }
    }
  }
}

void make_outputs(PTO2Runtime* rt, void* memory, uint64_t tasks, uint64_t width) {
  std::vector<Tensor> slices = slices_of(memory, width);
  const uint64_t shapes[] = {kTile};
  for (uint64_t first = 0; first < tasks; first += kScopeTasks) {
    PTO2_SCOPE(rt) {
      std::vector<Tensor> lanes = slices;
      for (uint64_t i = first; i < tasks && i < first + kScopeTasks; ++i) {
        Tensor out = make_tensor(shapes, 1);
        Tensor& lane = lanes[i % width];
        PTOParam params[] = {make_input_param(lane), make_input_param(slices[i % width]),
                             make_output_param(out)};
        pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 3);
        lane = out;
      }
    }
  }
}

void attend(PTO2Runtime* rt, void* memory, uint64_t queries, uint64_t blocks) {
  const uint64_t cache_shapes[] = {2 * queries * blocks * kTile, kTile};
  Tensor cache = make_tensor_external(memory, cache_shapes, 2);
  const uint64_t tile[] = {kTile, kTile};
  const uint64_t row[] = {kTile};
  for (uint64_t query = 0; query < queries; ++query) {
    PTO2_SCOPE(rt) {
      Tensor oi = make_tensor(tile, 2), li = make_tensor(row, 1), mi = make_tensor(row, 1);
      PTOParam hub[] = {make_output_param(oi), make_output_param(li), make_output_param(mi)};
      pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, hub, 3);
      for (uint64_t block = 0; block < blocks; ++block) {
        const uint64_t key_offsets[] = {(query * blocks + block) * 2 * kTile, 0};
        const uint64_t value_offsets[] = {key_offsets[0] + kTile, 0};
        Tensor key = cache.view(tile, key_offsets), value = cache.view(tile, value_offsets);
        Tensor sij = make_tensor(tile, 2), pij = make_tensor(tile, 2), mij = make_tensor(row, 1),
               lij = make_tensor(row, 1), oi_new = make_tensor(tile, 2);
        PTOParam qk[] = {make_input_param(key), make_output_param(sij)};
        pto2_rt_submit_task(rt, 1, PTO2_WORKER_CUBE, qk, 2);
        PTOParam sf[] = {make_input_param(sij), make_output_param(pij), make_output_param(mij),
                         make_output_param(lij)};
        pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, sf, 4);
        PTOParam pv[] = {make_input_param(pij), make_input_param(value), make_output_param(oi_new)};
        pto2_rt_submit_task(rt, 1, PTO2_WORKER_CUBE, pv, 3);
        PTOParam up[] = {make_input_param(mij), make_input_param(lij), make_input_param(oi_new),
                         make_inout_param(mi),  make_inout_param(li),  make_inout_param(oi)};
        pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, up, 6);
      }
    }
  }
}

void submit_blocks(PTO2Runtime* rt, void* memory, uint64_t blocks, uint64_t width, bool at_once) {
  const uint64_t shapes[] = {kTile};
  Tensor buffer = make_tensor_external(memory, shapes, 1);
  for (uint64_t first = 0; first < blocks; first += width) {
    PTO2_SCOPE(rt) {
      if (at_once) {
        PTOParam params[] = {make_input_param(buffer)};
        pto2_rt_submit_block_task(rt, 0, PTO2_WORKER_VECTOR, params, 1,
                                  static_cast<int32_t>(width));
        continue;
      }
      for (uint64_t block = 0; block < width; ++block) {
        PTOParam params[] = {make_input_param(buffer), make_scalar_param(width),
                             make_scalar_param(block)};
        pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 3);
      }
    }
  }
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  return PTO2OrchestrationConfig{.expected_arg_count = 4};
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  void* memory = reinterpret_cast<void*>(args[0]);
  const uint64_t tasks = args[2];
  const uint64_t width = args[3];
  switch (args[1]) {
    case 0:
      return update_slices(rt, memory, tasks, width);
    case 1:
      return make_outputs(rt, memory, tasks, width);
    case 2:
      return attend(rt, memory, tasks, width);
    case 3:
      return submit_blocks(rt, memory, tasks, width, true);
    default:
      return submit_blocks(rt, memory, tasks, width, false);
  }
}
