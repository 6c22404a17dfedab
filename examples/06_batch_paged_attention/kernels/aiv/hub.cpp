// HUB: initialises the running softmax.
//
// Arguments: the tensors running_max and running_sum [rows], running_out [rows][head_dim], float32.

#include "../views.hpp"

constexpr float kLowest = -3.402823466e38f;  // its exponential is 0

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  __gm__ float* running_max = first_element<float>(args[0]);
  __gm__ float* running_sum = first_element<float>(args[1]);
  __gm__ float* running_out = first_element<float>(args[2]);
  const uint64_t rows = tensor(args[2])->shapes[0], head_dim = tensor(args[2])->shapes[1];

  for (uint64_t row = 0; row < rows; ++row) {
    running_max[row] = kLowest;
    running_sum[row] = 0.0f;
  }
  for (uint64_t i = 0; i < rows * head_dim; ++i) running_out[i] = 0.0f;
}
