// scores = query key^T for one block of every sequence and one group of heads that share a key.
//
// Arguments: the tensors query [batch][heads * dim], key_cache [block][token][1][dim] float32,
// block_table [batch][1] and contexts [batch] int32, scores [batch * heads][block_size] float32;
// the number of the block within its sequence.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const TensorData &queries = tensor(args[0]), &cache = tensor(args[1]), &table = tensor(args[2]);
  const float* query = first_element<const float>(args[0]);
  const float* key_cache = first_element<const float>(args[1]);
  const int32_t* block_table = first_element<const int32_t>(args[2]);
  const int32_t* contexts = first_element<const int32_t>(args[3]);
  float* scores = first_element<float>(args[4]);
  const int64_t block = args[5];
  const uint64_t batch = queries.shapes[0], dim = cache.shapes[3], block_size = cache.shapes[1];
  const uint64_t heads = queries.shapes[1] / dim;

  for (uint64_t sequence = 0; sequence < batch; ++sequence) {
    const int64_t tokens = tokens_in_block(contexts[sequence], block, block_size);
    if (tokens == 0) continue;  // the table has no block for this sequence
    const float* key = key_cache + block_table[sequence * pitch(table)] * pitch(cache);
    for (uint64_t head = 0; head < heads; ++head) {
      const float* vector = query + sequence * pitch(queries) + head * dim;
      float* row = scores + (sequence * heads + head) * block_size;
      for (int64_t token = 0; token < tokens; ++token) {
        const float* line = key + token * pitch(cache, 1);
        float score = 0.0f;
        for (uint64_t d = 0; d < dim; ++d) score += vector[d] * line[d];
        row[token] = score;
      }
    }
  }
}
