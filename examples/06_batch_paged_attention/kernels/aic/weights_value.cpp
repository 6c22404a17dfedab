// PV: partial = weights value for one block of each sequence of a chunk.
//
// Arguments: the tensors weights [batch * heads][block_size] float32, value_cache [block][token][1]
// [head_dim] bfloat16, block_table [batch][1] and contexts [batch] int32, partial [batch * heads]
// [head_dim] float32; the number of the block within its sequence.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const Tensor cache = tensor(args[1]), table = tensor(args[2]), result = tensor(args[4]);
  const __gm__ float* weights = first_element<const float>(args[0]);
  const __gm__ uint16_t* value_cache = first_element<const uint16_t>(args[1]);
  const __gm__ int32_t* block_table = first_element<const int32_t>(args[2]);
  const __gm__ int32_t* contexts = first_element<const int32_t>(args[3]);
  __gm__ float* partial = first_element<float>(args[4]);
  const int64_t block = args[5];
  const uint64_t block_size = cache->shapes[1], dim = result->shapes[1];
  const uint64_t batch = table->shapes[0], heads = result->shapes[0] / batch;

  for (uint64_t i = 0; i < batch * heads * dim; ++i) partial[i] = 0.0f;
  for (uint64_t sequence = 0; sequence < batch; ++sequence) {
    const int64_t tokens = tokens_in_block(contexts[sequence], block, block_size);
    if (tokens == 0) continue;  // the table has no block for this sequence
    const __gm__ uint16_t* value =
        value_cache + block_table[sequence * pitch(table)] * pitch(cache);
    for (uint64_t row = sequence * heads; row < (sequence + 1) * heads; ++row) {
      for (int64_t token = 0; token < tokens; ++token) {
        const float weight = weights[row * block_size + token];
        for (uint64_t d = 0; d < dim; ++d) {
          partial[row * dim + d] += weight * from_bfloat16(value[token * dim + d]);
        }
      }
    }
  }
}
