// Runs on the host: moves the matrices, then builds a chain of accumulations per tile of C.

#include <cstdint>

#include "runtime.h"

namespace {

enum Function { kGemmTile = 0, kAccumulate = 1 };

constexpr uint64_t kTile = 64;
constexpr uint64_t kTileElements = kTile * kTile;

uint64_t copied_in(Runtime* runtime, uint64_t host_address, uint64_t elements) {
  const size_t bytes = elements * sizeof(float);
  void* device = runtime->host_api.device_malloc(bytes);
  if (device == nullptr) return 0;
  const void* host = reinterpret_cast<const void*>(host_address);
  if (runtime->host_api.copy_to_device(device, host, bytes) != 0) return 0;
  return reinterpret_cast<uint64_t>(device);
}

// The address of element (row, column) of a row-major float matrix.
uint64_t element(uint64_t matrix, uint64_t pitch, uint64_t row, uint64_t column) {
  return matrix + (row * pitch + column) * sizeof(float);
}

}  // namespace

extern "C" int build_gemm_graph(Runtime* runtime, uint64_t* args, int arg_count) {
  if (arg_count != 6) return -1;
  const uint64_t rows = args[3], columns = args[4], depth = args[5];  // in tiles
  const uint64_t a_pitch = depth * kTile, b_pitch = columns * kTile, c_pitch = columns * kTile;

  const uint64_t a = copied_in(runtime, args[0], rows * depth * kTileElements);
  const uint64_t b = copied_in(runtime, args[1], depth * columns * kTileElements);
  const uint64_t c = copied_in(runtime, args[2], rows * columns * kTileElements);
  const size_t products_bytes = rows * columns * depth * kTileElements * sizeof(float);
  void* products = runtime->host_api.device_malloc(products_bytes);
  if (a == 0 || b == 0 || c == 0 || products == nullptr) return -1;
  runtime->record_tensor_pair(reinterpret_cast<void*>(args[2]), reinterpret_cast<void*>(c),
                              rows * columns * kTileElements * sizeof(float));

  uint64_t product = reinterpret_cast<uint64_t>(products);
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j) {
      int previous = -1;
      for (uint64_t k = 0; k < depth; ++k) {
        uint64_t gemm[] = {element(a, a_pitch, i * kTile, k * kTile), a_pitch,
                           element(b, b_pitch, k * kTile, j * kTile), b_pitch, product};
        uint64_t add[] = {product, element(c, c_pitch, i * kTile, j * kTile), c_pitch};
        const int gemm_task = runtime->add_task(gemm, 5, kGemmTile, CoreType::AIC);
        const int add_task = runtime->add_task(add, 3, kAccumulate, CoreType::AIV);
        runtime->add_successor(gemm_task, add_task);
        if (previous >= 0) runtime->add_successor(previous, add_task);
        previous = add_task;
        product += kTileElements * sizeof(float);
      }
    }
  }
  return 0;
}
