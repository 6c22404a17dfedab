// out = x + y; arguments: the tensors x, y and out [rows][columns], float32. Each may be a view of
// a wider matrix.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const TensorData &left = tensor(args[0]), &right = tensor(args[1]), &result = tensor(args[2]);
  const float* x = first_element<const float>(args[0]);
  const float* y = first_element<const float>(args[1]);
  float* out = first_element<float>(args[2]);
  for (uint64_t row = 0; row < result.shapes[0]; ++row) {
    for (uint64_t column = 0; column < result.shapes[1]; ++column) {
      out[row * pitch(result) + column] =
          x[row * pitch(left) + column] + y[row * pitch(right) + column];
    }
  }
}
