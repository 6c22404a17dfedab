// Graphs of empty kernels in the interface of August 2026; scopes of 1,024 tasks.
// args: the buffer, then graph, tasks, width.
//   graph 0: task i reads and writes slice i % width of the buffer
//   graph 1: as 0, but task i reads the slice and the last output of its lane, and writes a new
//            output
//   graph 2: `tasks` blocks of one kernel, with one submit for each `width` of them
//   graph 3: as 2, with one submit for each block
//   graph 4: calls of a graph of `width` tasks, which read and write 8 slices, `tasks` in all
//   graph 5: as 4, with the body called each time
#include "pto_orchestration_api.h"

namespace {

constexpr uint32_t kScopeTasks = 1024;
constexpr uint32_t kTile[] = {16};

ChipTensor slice_of(const ChipTensor& buffer, uint32_t index) {
  const uint32_t offsets[] = {index * kTile[0]};
  return buffer.view(kTile, offsets);
}

std::vector<ChipTensor> slices_of(const ChipTensor& buffer, uint32_t width) {
  std::vector<ChipTensor> slices;
  for (uint32_t i = 0; i < width; ++i) slices.push_back(slice_of(buffer, i));
  return slices;
}

void update_slices(const ChipTensor& buffer, uint32_t tasks, uint32_t width) {
  const std::vector<ChipTensor> slices = slices_of(buffer, width);
  for (uint32_t first = 0; first < tasks; first += kScopeTasks) {
    PTO2_SCOPE() {
      for (uint32_t i = first; i < tasks && i < first + kScopeTasks; ++i) {
        CoreTaskArgs args;
        args.add_inout(slices[i % width]);
        rt_submit_aiv_task(0, args);
      }
    }
  }
}

void make_outputs(const ChipTensor& buffer, uint32_t tasks, uint32_t width) {
  const std::vector<ChipTensor> slices = slices_of(buffer, width);
  const TensorCreateInfo info(kTile, 1);
  for (uint32_t first = 0; first < tasks; first += kScopeTasks) {
    PTO2_SCOPE() {
      std::vector<const ChipTensor*> lanes;
      for (const ChipTensor& slice : slices) lanes.push_back(&slice);
      for (uint32_t i = first; i < tasks && i < first + kScopeTasks; ++i) {
        CoreTaskArgs args;
        args.add_input(*lanes[i % width], slices[i % width]);
        args.add_output(info);
        lanes[i % width] = &rt_submit_aiv_task(0, args).get_ref(0);
      }
    }
  }
}

void submit_blocks(const ChipTensor& buffer, uint32_t blocks, uint32_t width, uint32_t each) {
  for (uint32_t first = 0; first < blocks; first += width) {
    PTO2_SCOPE() {
      for (uint32_t block = 0; block < width; block += each) {
        CoreTaskArgs args;
        args.add_input(buffer);
        args.launch_spec.set_block_num(static_cast<int16_t>(each));
        rt_submit_aiv_task(0, args);
      }
    }
  }
}

void update_parts(const GraphTaskArgs& args, uint32_t tasks) {
  for (uint32_t i = 0; i < tasks; ++i) {
    const ChipTensor part = slice_of(args.tensor(0).ref(), i % 8);
    CoreTaskArgs task;
    task.add_inout(part);
    task.add_scalar(args.scalar(0));
    rt_submit_aiv_task(0, task);
  }
}

void call_graphs(const ChipTensor& buffer, uint32_t tasks, uint32_t width, bool is_graph) {
  const uint32_t shape[] = {8 * kTile[0]};
  for (uint32_t first = 0; first < tasks; first += width) {
    const uint32_t offsets[] = {first / width % 64 * shape[0]};
    const ChipTensor part = buffer.view(shape, offsets);
    GraphTaskArgs args;
    args.add_inout(part);
    args.add_scalar(first);
    if (is_graph) {
      rt_submit_graph(GRAPH_KEY("parts"), update_parts, args, width);
    } else {
      PTO2_SCOPE() {
        update_parts(args, width);
      }
    }
  }
}

}  // namespace

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
  const ChipTensor& buffer = args.tensor(0).ref();
  const auto tasks = static_cast<uint32_t>(args.scalar(1));
  const auto width = static_cast<uint32_t>(args.scalar(2));
  switch (args.scalar(0)) {
    case 0:
      return update_slices(buffer, tasks, width);
    case 1:
      return make_outputs(buffer, tasks, width);
    case 2:
      return submit_blocks(buffer, tasks, width, width);
    case 3:
      return submit_blocks(buffer, tasks, width, 1);
    default:
      return call_graphs(buffer, tasks, width, args.scalar(0) == 4);
  }
}
