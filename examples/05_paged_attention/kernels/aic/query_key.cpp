// QK: scores = query key^T for the tokens of one block.
//
// Arguments: query [heads][head_dim] bfloat16, key [tokens][pitch] bfloat16,
// scores [heads][block_size] float32, heads, tokens, head_dim, pitch of a token in elements,
// block_size. Only the first `tokens` columns of scores are written.

#include <cstdint>
#include <cstring>

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

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const uint16_t* query = reinterpret_cast<const uint16_t*>(args[0]);
  const uint16_t* key = reinterpret_cast<const uint16_t*>(args[1]);
  float* scores = reinterpret_cast<float*>(args[2]);
  const int64_t heads = args[3], tokens = args[4], head_dim = args[5];
  const int64_t pitch = args[6], block_size = args[7];

  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t token = 0; token < tokens; ++token) {
      float score = 0.0f;
      for (int64_t d = 0; d < head_dim; ++d) {
        score += from_bfloat16(query[head * head_dim + d]) * from_bfloat16(key[token * pitch + d]);
      }
      scores[head * block_size + token] = score;
    }
  }
}
