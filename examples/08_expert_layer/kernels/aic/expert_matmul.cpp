// out = x w for the first `count` rows; arguments: the tensors x [tokens][depth], w [1][depth]
// [columns], count [1] int32, out [...][tokens][columns]. The others are float32.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* x = first_element<const float>(args[0]);
  const float* w = first_element<const float>(args[1]);
  const int32_t count = *first_element<const int32_t>(args[2]);
  float* out = first_element<float>(args[3]);
  const uint64_t depth = tensor(args[1]).shapes[1], columns = tensor(args[1]).shapes[2];

  for (int32_t row = 0; row < count; ++row, x += depth, out += columns) {
    for (uint64_t column = 0; column < columns; ++column) out[column] = 0.0f;
    for (uint64_t k = 0; k < depth; ++k) {
      const float* line = w + k * columns;
      for (uint64_t column = 0; column < columns; ++column) out[column] += x[k] * line[column];
    }
  }
}
