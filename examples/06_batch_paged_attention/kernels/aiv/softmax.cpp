// SF: the softmax of one block of each sequence of a chunk, not yet divided by its sum.
//
// Arguments: the tensors scores [batch * heads][block_size] float32, contexts [batch] int32,
// weights [batch * heads][block_size], block_max and block_sum [batch * heads] float32; the number
// of the block within its sequence, bit pattern of the float32 scale. A sequence without tokens in
// the block gets the sum 0.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const __gm__ float* scores = first_element<const float>(args[0]);
  const __gm__ int32_t* contexts = first_element<const int32_t>(args[1]);
  __gm__ float* weights = first_element<float>(args[2]);
  __gm__ float* block_max = first_element<float>(args[3]);
  __gm__ float* block_sum = first_element<float>(args[4]);
  const int64_t block = args[5];
  const float scale = pto_float_argument(args[6]);
  const uint64_t rows = tensor(args[0])->shapes[0], block_size = tensor(args[0])->shapes[1];
  const uint64_t heads = rows / tensor(args[1])->shapes[0];

  for (uint64_t row = 0; row < rows; ++row) {
    const int64_t tokens = tokens_in_block(contexts[row / heads], block, block_size);
    const __gm__ float* score = scores + row * block_size;
    float maximum = tokens == 0 ? 0.0f : score[0] * scale;
    for (int64_t token = 1; token < tokens; ++token) {
      maximum = larger(maximum, score[token] * scale);
    }
    float sum = 0.0f;
    for (int64_t token = 0; token < tokens; ++token) {
      const float weight = exponential(score[token] * scale - maximum);
      weights[row * block_size + token] = weight;
      sum += weight;
    }
    block_max[row] = maximum;
    block_sum[row] = sum;
  }
}
