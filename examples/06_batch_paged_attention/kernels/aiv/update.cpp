// UP: merges one block of each sequence of a chunk into the running softmax; on the last block
// writes the output.
//
// Arguments: the tensors block_max and block_sum [batch * heads], partial [batch * heads]
// [head_dim], running_max and running_sum [batch * heads], running_out [batch * heads][head_dim],
// out [batch][heads][head_dim], all float32; last (1: write the output).

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const __gm__ float* block_max = first_element<const float>(args[0]);
  const __gm__ float* block_sum = first_element<const float>(args[1]);
  const __gm__ float* partial = first_element<const float>(args[2]);
  __gm__ float* running_max = first_element<float>(args[3]);
  __gm__ float* running_sum = first_element<float>(args[4]);
  __gm__ float* running_out = first_element<float>(args[5]);
  __gm__ float* out = first_element<float>(args[6]);
  const bool last = args[7] != 0;
  const Tensor result = tensor(args[6]);
  const uint64_t batch = result->shapes[0], heads = result->shapes[1], dim = result->shapes[2];

  for (uint64_t row = 0; row < batch * heads; ++row) {
    __gm__ float* total = running_out + row * dim;
    if (block_sum[row] > 0.0f) {
      // The running values and those of the block are relative to their own maxima; rescale both to
      // the larger one.
      const float maximum = larger(running_max[row], block_max[row]);
      const float keep = exponential(running_max[row] - maximum);
      const float join = exponential(block_max[row] - maximum);
      running_max[row] = maximum;
      running_sum[row] = running_sum[row] * keep + block_sum[row] * join;
      for (uint64_t d = 0; d < dim; ++d) {
        total[d] = total[d] * keep + partial[row * dim + d] * join;
      }
    }
    if (!last) continue;
    __gm__ float* target = out + (row / heads) * pitch(result) + (row % heads) * dim;
    for (uint64_t d = 0; d < dim; ++d) target[d] = total[d] / running_sum[row];
  }
}
