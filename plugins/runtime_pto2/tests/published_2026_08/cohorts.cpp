// Programs whose tasks wait for each other. `out` has 128 floats; the only scalar selects the
// program.
#include "pto_orchestration_api.h"

namespace {

enum Kernel { kBarrier = 0, kBarrierOfCube = 1, kPipe = 2, kPipeOfCube = 3, kOwn = 4 };
enum Shape { kAiv, kAic, kClusters };

ChipTensor element(const ChipTensor& out, uint32_t index) {
  const uint32_t one[] = {1};
  return out.view(one, &index);
}

int32_t most(Shape shape) {
  return shape == kAiv ? rt_available_aiv_count() : rt_available_cluster_count();
}

// Submit a task whose cores meet `rounds` times. It writes one element of `out`. If cores are
// absent, the others wait for ever.
void meet(const ChipTensor& out, uint32_t index, Shape shape, int32_t blocks, int32_t rounds,
          int32_t absent = 0) {
  const uint32_t cells[] = {74};
  TensorCreateInfo info(cells, 1, DataType::INT32);
  info.set_initial_value(int32_t{0});
  const TaskOutputTensors made = alloc_tensors(info);
  const ChipTensor result = element(out, index);
  CoreTaskArgs args;
  args.add_inout(made.get_ref(0));
  args.add_output(result);
  args.add_scalar(shape == kClusters ? 3 : 1, rounds, absent);
  args.launch_spec.set_block_num(static_cast<int16_t>(blocks));
  args.launch_spec.set_require_sync_start(true);
  if (shape == kClusters) {
    rt_submit_task(MixedKernels{kBarrierOfCube, kBarrier, kBarrier}, args);
  } else if (shape == kAic) {
    rt_submit_aic_task(kBarrierOfCube, args);
  } else {
    rt_submit_aiv_task(kBarrier, args);
  }
}

void pipes(const ChipTensor& out, uint32_t first, int32_t blocks, int32_t tiles) {
  const ChipTensor results = element(out, first);
  CoreTaskArgs args;
  args.add_output(results);
  args.add_scalar(tiles);
  args.launch_spec.set_block_num(static_cast<int16_t>(blocks));
  rt_submit_task(MixedKernels{kPipeOfCube, kPipe, kPipe}, args);
}

// 100 tasks in a random order: cohorts of all cores and of some, single tasks, and mixed ones.
void many(const ChipTensor& out) {
  uint32_t random = 12345;
  const auto below = [&random](int32_t limit) {
    random = random * 1664525 + 1013904223;
    return static_cast<int32_t>((random >> 8) % static_cast<uint32_t>(limit));
  };
  for (uint32_t i = 0; i < 100; ++i) {
    const auto shape = static_cast<Shape>(below(3));
    const int32_t kind = below(4);
    if (kind == 0) {
      meet(out, i, shape, most(shape), 3);
    } else if (kind == 1) {
      meet(out, i, shape, 1 + below(most(shape)), 3);
    } else {
      meet(out, i, shape, 1, 1);
    }
  }
}

void often(const ChipTensor& out) {
  meet(out, 0, kAiv, most(kAiv), 100);
  meet(out, 1, kClusters, most(kClusters), 100);
}

void through_pipes(const ChipTensor& out) {
  pipes(out, 0, 30, 100);
  pipes(out, 30, 5, 100);
}

void too_many(const ChipTensor& out) {
  meet(out, 0, kAiv, most(kAiv) + 1, 1);
}

void endless(const ChipTensor& out) {
  meet(out, 1, kAic, most(kAic), 3);
  meet(out, 0, kAiv, most(kAiv), 1, 1);
}

// A body that is recorded: cohorts of all cores, of clusters and of lanes that pass tiles.
void meet_thrice(const GraphTaskArgs& args) {
  const ChipTensor& out = args.tensor(0).ref();
  meet(out, 0, kAiv, most(kAiv), 3);
  meet(out, 1, kClusters, most(kClusters), 3);
  pipes(out, 2, 1, 4);
}

void recorded(const ChipTensor& out) {
  for (uint32_t i = 0; i < 120; i += 4) {
    const uint32_t shape[] = {4};
    const ChipTensor part = out.view(shape, &i);
    GraphTaskArgs args;
    args.add_inout(part);
    rt_submit_graph(GRAPH_KEY("meet"), meet_thrice, args);
  }
}

// Single tasks on the cores of the same clusters, which ask for the same key.
void apart(const ChipTensor& out) {
  for (uint32_t i = 0; i < 40; ++i) {
    const ChipTensor result = element(out, i);
    CoreTaskArgs args;
    args.add_output(result);
    args.add_scalar(64 + 4096 * (i % 3));
    rt_submit_aiv_task(kOwn, args);
  }
}

// The kernel of lane 1 waits for ever for a tile, the one of lane 0 returns.
void endless_lane(const ChipTensor& out) {
  CoreTaskArgs args;
  args.add_output(out);
  args.add_scalar(64);
  rt_submit_task(MixedKernels{-1, kOwn, kPipe}, args);
}

constexpr void (*kPrograms[])(const ChipTensor&) = {many,    often,    through_pipes, too_many,
                                                    endless, recorded, apart,         endless_lane};

}  // namespace

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
  kPrograms[from_u64<int>(args.scalar(0))](args.tensor(0).ref());
}
