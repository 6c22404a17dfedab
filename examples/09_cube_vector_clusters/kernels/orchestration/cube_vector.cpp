// Runs on an AICPU thread: a matmul on the cube core of a cluster, then its activation on a vector
// core of the same cluster. The product is never the output of a task. It stays in the cluster's
// own memory (`local`, one tile per cluster), and a pipe tensor orders the two halves.

#include <cstdint>
#include <initializer_list>

#include "pto_orchestration_api.h"

namespace {

enum Function { kMatmul = 0, kActivate = 1 };

constexpr uint64_t kTile = 32;
constexpr int32_t kClusters = 24;

// The arguments, in the order of golden.py; the first five are device addresses.
struct Arguments {
  uint64_t x, w, bias, local, y;
  uint64_t blocks, columns, depth;  // tiles of rows, tiles of columns, terms per sum
  uint64_t as_block_tasks;
};

using Shape = std::initializer_list<uint64_t>;

Tensor external(uint64_t address, Shape shape) {
  return make_tensor_external(reinterpret_cast<void*>(address), shape.begin(), shape.size());
}

Tensor part(const Tensor& whole, Shape shape, Shape offsets) {
  return whole.view(shape.begin(), offsets.begin());
}

class Layer {
 public:
  Layer(PTO2Runtime* rt, const Arguments& in)
      : rt_(rt),
        in_(in),
        x_(external(in.x, {in.blocks * kTile, in.depth})),
        w_(external(in.w, {in.depth, in.columns * kTile})),
        bias_(external(in.bias, {in.columns * kTile})),
        local_(external(in.local, {kClusters, kTile, kTile})),
        y_(external(in.y, {in.blocks * kTile, in.columns * kTile})) {}

  void submit_pairs();
  void submit_block_tasks();

 private:
  void submit_pair(uint64_t block, uint64_t column);

  Tensor weights(uint64_t column) { return part(w_, {in_.depth, kTile}, {0, column * kTile}); }
  Tensor bias(uint64_t column) { return part(bias_, {kTile}, {column * kTile}); }
  Tensor result(uint64_t block, uint64_t count, uint64_t column) {
    return part(y_, {count * kTile, kTile}, {block * kTile, column * kTile});
  }

  PTO2Runtime* rt_;
  const Arguments& in_;
  Tensor x_, w_, bias_, local_, y_;
};

// Each pair has one cluster. The cluster is freed at once, but becomes available only when its two
// tasks are done. So with more pairs than clusters the allocation waits.
void Layer::submit_pairs() {
  for (uint64_t column = 0; column < in_.columns; ++column) {
    for (uint64_t block = 0; block < in_.blocks; ++block) {
      PTO2_SCOPE(rt_) {
        submit_pair(block, column);
      }
    }
  }
}

void Layer::submit_pair(uint64_t block, uint64_t column) {
  const int32_t cluster = pto2_rt_allocate_cluster(rt_);
  if (cluster < 0) return;
  const Tensor product = part(local_, {1, kTile, kTile}, {static_cast<uint64_t>(cluster), 0, 0});
  const Tensor rows = part(x_, {kTile, in_.depth}, {block * kTile, 0});
  const Tensor pipe = make_pipe_tensor();
  const PTOParam block_dim = make_scalar_param(1), block_id = make_scalar_param(0);

  PTOParam matmul[] = {make_input_param(rows),
                       make_input_param(weights(column)),
                       make_no_dep_param(product),
                       make_output_param(pipe),
                       block_dim,
                       block_id};
  pto2_rt_submit_task_clustered(rt_, kMatmul, PTO2_WORKER_CUBE, matmul, 6, cluster);
  PTOParam activate[] = {make_no_dep_param(product),
                         make_input_param(bias(column)),
                         make_output_param(result(block, 1, column)),
                         make_input_param(pipe),
                         block_dim,
                         block_id};
  pto2_rt_submit_task_clustered(rt_, kActivate, PTO2_WORKER_VECTOR, activate, 6, cluster);
  pto2_rt_free_cluster(rt_, cluster);
}

// Every block keeps its cluster for all columns. The pipe is INOUT of both halves: the cube cores
// fill it again after the vector cores have read it.
void Layer::submit_block_tasks() {
  const int32_t blocks = static_cast<int32_t>(in_.blocks);
  int32_t clusters[kClusters];
  for (int32_t block = 0; block < blocks; ++block) clusters[block] = pto2_rt_allocate_cluster(rt_);

  const Tensor pipe = make_pipe_tensor();
  for (uint64_t column = 0; column < in_.columns; ++column) {
    PTOParam matmul[] = {make_input_param(x_), make_input_param(weights(column)),
                         make_no_dep_param(local_),
                         column == 0 ? make_output_param(pipe) : make_inout_param(pipe)};
    pto2_rt_submit_block_task(rt_, kMatmul, PTO2_WORKER_CUBE, matmul, 4, blocks, clusters);
    PTOParam activate[] = {make_no_dep_param(local_), make_input_param(bias(column)),
                           make_output_param(result(0, in_.blocks, column)),
                           make_inout_param(pipe)};
    pto2_rt_submit_block_task(rt_, kActivate, PTO2_WORKER_VECTOR, activate, 4, blocks, clusters);
  }
  for (int32_t block = 0; block < blocks; ++block) pto2_rt_free_cluster(rt_, clusters[block]);
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 9;
  return config;
}

extern "C" int aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const Arguments in{args[0], args[1], args[2], args[3], args[4],
                     args[5], args[6], args[7], args[8]};
  Layer layer(rt, in);
  if (in.as_block_tasks == 0) {
    layer.submit_pairs();
    return 0;
  }
  if (in.blocks > kClusters) return -1;  // each block of a block task needs its own cluster
  layer.submit_block_tasks();
  return 0;
}
