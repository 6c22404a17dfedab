// QK: scores = query key^T for the tokens of one block.
//
// Arguments: the tensors query [heads][head_dim] bfloat16, key [1][tokens][1][head_dim] bfloat16, a
// view into the cache [block][token][head][head_dim], and scores [heads][block_size] float32, of
// which only the first `tokens` columns are written.

#include <cstdint>
#include <cstring>

#include "tensor.h"

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

static float from_bfloat16(uint16_t bits) {
  const uint32_t pattern = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &pattern, sizeof(value));
  return value;
}

static const TensorData& tensor(int64_t argument) {
  return *reinterpret_cast<const TensorData*>(argument);
}

template <typename T>
static T* first_element(const TensorData& view) {
  return reinterpret_cast<T*>(view.buffer.addr) + view.start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const TensorData &queries = tensor(args[0]), &keys = tensor(args[1]), &result = tensor(args[2]);
  const uint16_t* query = first_element<const uint16_t>(queries);
  const uint16_t* key = first_element<const uint16_t>(keys);
  float* scores = first_element<float>(result);
  const uint64_t heads = queries.shapes[0], head_dim = queries.shapes[1], tokens = keys.shapes[1];
  const uint64_t pitch = keys.raw_shapes[2] * keys.raw_shapes[3];  // distance between two tokens
  const uint64_t block_size = result.shapes[1];

  for (uint64_t head = 0; head < heads; ++head) {
    for (uint64_t token = 0; token < tokens; ++token) {
      float score = 0.0f;
      for (uint64_t d = 0; d < head_dim; ++d) {
        score += from_bfloat16(query[head * head_dim + d]) * from_bfloat16(key[token * pitch + d]);
      }
      scores[head * block_size + token] = score;
    }
  }
}
