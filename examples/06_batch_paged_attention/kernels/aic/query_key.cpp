// QK: scores = query key^T for one block of each sequence of a chunk.
//
// Arguments: the tensors query [batch][heads][head_dim] bfloat16, key_cache [block][token][1]
// [head_dim] bfloat16, block_table [batch][1] and contexts [batch] int32, scores [batch * heads]
// [block_size] float32; the number of the block within its sequence.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const Tensor queries = tensor(args[0]), cache = tensor(args[1]), table = tensor(args[2]);
  const __gm__ uint16_t* query = first_element<const uint16_t>(args[0]);
  const __gm__ uint16_t* key_cache = first_element<const uint16_t>(args[1]);
  const __gm__ int32_t* block_table = first_element<const int32_t>(args[2]);
  const __gm__ int32_t* contexts = first_element<const int32_t>(args[3]);
  __gm__ float* scores = first_element<float>(args[4]);
  const int64_t block = args[5];
  const uint64_t batch = queries->shapes[0], heads = queries->shapes[1], dim = queries->shapes[2];
  const uint64_t block_size = cache->shapes[1];

  for (uint64_t sequence = 0; sequence < batch; ++sequence) {
    const int64_t tokens = tokens_in_block(contexts[sequence], block, block_size);
    if (tokens == 0) continue;  // the table has no block for this sequence
    const __gm__ uint16_t* key = key_cache + block_table[sequence * pitch(table)] * pitch(cache);
    for (uint64_t head = 0; head < heads; ++head) {
      const __gm__ uint16_t* vector = query + sequence * pitch(queries) + head * dim;
      __gm__ float* row = scores + (sequence * heads + head) * block_size;
      for (int64_t token = 0; token < tokens; ++token) {
        float score = 0.0f;
        for (uint64_t d = 0; d < dim; ++d) {
          score += from_bfloat16(vector[d]) * from_bfloat16(key[token * dim + d]);
        }
        row[token] = score;
      }
    }
  }
}
