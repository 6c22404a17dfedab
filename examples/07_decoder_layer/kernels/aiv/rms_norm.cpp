// out = x / sqrt(mean(x x)) * weight for each row; arguments: the tensors x [rows][hidden], weight
// [hidden], out [rows][hidden], float32; bit pattern of the float32 epsilon.

#include <cmath>

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* x = first_element<const float>(args[0]);
  const float* weight = first_element<const float>(args[1]);
  float* out = first_element<float>(args[2]);
  const float epsilon = float_scalar(args[3]);
  const uint64_t rows = tensor(args[0]).shapes[0], hidden = tensor(args[0]).shapes[1];

  for (uint64_t row = 0; row < rows; ++row, x += hidden, out += hidden) {
    float squares = 0.0f;
    for (uint64_t i = 0; i < hidden; ++i) squares += x[i] * x[i];
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(hidden) + epsilon);
    for (uint64_t i = 0; i < hidden; ++i) out[i] = x[i] * factor * weight[i];
  }
}
