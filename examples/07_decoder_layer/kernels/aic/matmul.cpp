// out = x w; arguments: the tensors x [rows][depth], w [depth][columns], out [rows][columns],
// float32. Each may be a view of a wider matrix.

#include "../views.hpp"

constexpr uint64_t kMaxColumns = 64;

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const TensorData &left = tensor(args[0]), &right = tensor(args[1]), &result = tensor(args[2]);
  const float* x = first_element<const float>(args[0]);
  const float* w = first_element<const float>(args[1]);
  float* out = first_element<float>(args[2]);
  const uint64_t rows = left.shapes[0], depth = left.shapes[1], columns = result.shapes[1];

  for (uint64_t row = 0; row < rows; ++row) {
    float sums[kMaxColumns] = {};
    for (uint64_t k = 0; k < depth; ++k) {
      const float factor = x[row * pitch(left) + k];
      const float* line = w + k * pitch(right);
      for (uint64_t column = 0; column < columns; ++column) sums[column] += factor * line[column];
    }
    for (uint64_t column = 0; column < columns; ++column) {
      out[row * pitch(result) + column] = sums[column];
    }
  }
}
