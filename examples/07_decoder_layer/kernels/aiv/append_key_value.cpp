// Rotates the new key of one key head and stores key and value in the newest slot of each sequence.
//
// Arguments: the tensors key and value [batch][dim], cosines and sines [position][dim / 2],
// float32, contexts [batch] and block_table [batch][width] int32, key_cache and value_cache
// [block][token][1][dim] float32 (one head of each, in place).

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* keys = first_element<const float>(args[0]);
  const float* values = first_element<const float>(args[1]);
  const float* cosines = first_element<const float>(args[2]);
  const float* sines = first_element<const float>(args[3]);
  const int32_t* contexts = first_element<const int32_t>(args[4]);
  const int32_t* block_table = first_element<const int32_t>(args[5]);
  float* key_cache = first_element<float>(args[6]);
  float* value_cache = first_element<float>(args[7]);
  const TensorData &heads = tensor(args[0]), &cache = tensor(args[6]);
  const uint64_t batch = heads.shapes[0], dim = heads.shapes[1], block_size = cache.shapes[1];

  for (uint64_t sequence = 0; sequence < batch; ++sequence) {
    const uint64_t position = static_cast<uint64_t>(contexts[sequence] - 1);
    const uint64_t entry = sequence * pitch(tensor(args[5])) + position / block_size;
    const uint64_t slot = static_cast<uint64_t>(block_table[entry]) * pitch(cache) +
                          position % block_size * pitch(cache, 1);
    for (uint64_t d = 0; d < dim; ++d) {
      key_cache[slot + d] = keys[sequence * pitch(heads) + d];
      value_cache[slot + d] = values[sequence * pitch(heads) + d];
    }
    const uint64_t angles = position * dim / 2;
    rotate(key_cache + slot, cosines + angles, sines + angles, dim);
  }
}
