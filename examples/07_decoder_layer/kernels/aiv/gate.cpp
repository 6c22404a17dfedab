// out = silu(gate) up with silu(x) = x / (1 + exp(-x)); arguments: the tensors gate and up
// [rows][columns], contiguous, out [rows][columns], a view of a wider matrix. All are float32.

#include <cmath>

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const TensorData& result = tensor(args[2]);
  const float* gate = first_element<const float>(args[0]);
  const float* up = first_element<const float>(args[1]);
  float* out = first_element<float>(args[2]);
  const uint64_t rows = result.shapes[0], columns = result.shapes[1];
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t column = 0; column < columns; ++column) {
      const float x = gate[row * columns + column];
      out[row * pitch(result) + column] = x / (1.0f + std::exp(-x)) * up[row * columns + column];
    }
  }
}
