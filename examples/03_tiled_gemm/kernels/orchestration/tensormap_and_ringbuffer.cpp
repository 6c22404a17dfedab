// Runs on an AICPU thread. A tile of C is INOUT of each of its accumulations, which orders them as
// a chain in the order of their submits. Products stay in the heap ring until the scope of their
// tile ends.

#include <cstdint>

#include "pto_orchestration_api.h"

namespace {

enum Function { kGemmTile = 0, kAccumulate = 1 };

constexpr uint64_t kTile = 64;
constexpr uint64_t kTileShape[] = {kTile, kTile};

Tensor matrix(uint64_t address, uint64_t tile_rows, uint64_t tile_columns) {
  const uint64_t shape[] = {tile_rows * kTile, tile_columns * kTile};
  return make_tensor_external(reinterpret_cast<void*>(address), shape, 2);
}

Tensor tile(Tensor& whole, uint64_t row, uint64_t column) {
  const uint64_t offsets[] = {row * kTile, column * kTile};
  return whole.view(kTileShape, offsets);
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 6;
  return config;
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t rows = args[3], columns = args[4], depth = args[5];  // in tiles
  Tensor a = matrix(args[0], rows, depth);
  Tensor b = matrix(args[1], depth, columns);
  Tensor c = matrix(args[2], rows, columns);

  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j) {
      PTO2_SCOPE(rt) {
        Tensor c_tile = tile(c, i, j);
        for (uint64_t k = 0; k < depth; ++k) {
          Tensor a_tile = tile(a, i, k), b_tile = tile(b, k, j);
          Tensor product = make_tensor(kTileShape, 2);
          PTOParam gemm[] = {make_input_param(a_tile), make_input_param(b_tile),
                             make_output_param(product)};
          pto2_rt_submit_task(rt, kGemmTile, PTO2_WORKER_CUBE, gemm, 3);
          PTOParam add[] = {make_input_param(product), make_inout_param(c_tile)};
          pto2_rt_submit_task(rt, kAccumulate, PTO2_WORKER_VECTOR, add, 2);
        }
      }
    }
  }
}
