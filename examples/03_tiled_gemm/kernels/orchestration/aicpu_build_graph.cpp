// Runs on an AICPU thread: builds a chain of accumulations per tile of C. Each task is published as
// soon as its edges have been added, so the first products are ready while the last tasks are being
// added.

#include <cstdint>

#include "runtime.h"

namespace {

enum Function { kGemmTile = 0, kAccumulate = 1 };

constexpr uint64_t kTile = 64;
constexpr uint64_t kTileElements = kTile * kTile;

// The address of element (row, column) of a row-major float matrix.
uint64_t element(uint64_t matrix, uint64_t pitch, uint64_t row, uint64_t column) {
  return matrix + (row * pitch + column) * sizeof(float);
}

}  // namespace

extern "C" int build_gemm_graph(Runtime* runtime) {
  if (runtime->orch_argc != 6) return -1;
  const auto& api = runtime->aicpu_build_api;
  const uint64_t a = runtime->orch_args[0], b = runtime->orch_args[1], c = runtime->orch_args[2];
  const uint64_t rows = runtime->orch_args[3];  // number of tiles, as are the next two
  const uint64_t columns = runtime->orch_args[4];
  const uint64_t depth = runtime->orch_args[5];
  const uint64_t a_pitch = depth * kTile, b_pitch = columns * kTile, c_pitch = columns * kTile;

  void* products = api.device_malloc(rows * columns * depth * kTileElements * sizeof(float));
  if (products == nullptr) return -1;

  uint64_t product = reinterpret_cast<uint64_t>(products);
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j) {
      int previous = -1;
      for (uint64_t k = 0; k < depth; ++k) {
        uint64_t gemm[] = {element(a, a_pitch, i * kTile, k * kTile), a_pitch,
                           element(b, b_pitch, k * kTile, j * kTile), b_pitch, product};
        const int gemm_task = api.add_task(runtime, gemm, 5, kGemmTile, CoreType::AIC, 0);
        api.publish_task(runtime, gemm_task);

        uint64_t add[] = {product, element(c, c_pitch, i * kTile, j * kTile), c_pitch};
        const int add_task = api.add_task(runtime, add, 3, kAccumulate, CoreType::AIV, 0);
        api.add_successor_conditional(runtime, gemm_task, add_task);
        if (previous >= 0) api.add_successor_conditional(runtime, previous, add_task);
        api.publish_task(runtime, add_task);

        previous = add_task;
        product += kTileElements * sizeof(float);
      }
    }
  }
  return 0;
}
