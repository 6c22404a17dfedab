// Rotates the query heads of one group to the position of the newest token of each sequence.
//
// Arguments: the tensors query [batch][heads * dim] (in place), cosines and sines
// [position][dim / 2], float32, contexts [batch] int32.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const TensorData& queries = tensor(args[0]);
  float* query = first_element<float>(args[0]);
  const float* cosines = first_element<const float>(args[1]);
  const float* sines = first_element<const float>(args[2]);
  const int32_t* contexts = first_element<const int32_t>(args[3]);
  const uint64_t half = tensor(args[1]).shapes[1], dim = 2 * half;

  for (uint64_t sequence = 0; sequence < queries.shapes[0]; ++sequence) {
    const uint64_t angles = static_cast<uint64_t>(contexts[sequence] - 1) * half;
    float* row = query + sequence * pitch(queries);
    for (uint64_t start = 0; start < queries.shapes[1]; start += dim) {
      rotate(row + start, cosines + angles, sines + angles, dim);
    }
  }
}
