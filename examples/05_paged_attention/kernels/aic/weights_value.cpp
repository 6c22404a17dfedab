// PV: partial = weights value for the tokens of one block.
//
// Arguments: weights [heads][block_size] float32, value [tokens][pitch] bfloat16,
// partial [heads][head_dim] float32, heads, tokens, head_dim, pitch of a token in elements,
// block_size.

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
  const float* weights = reinterpret_cast<const float*>(args[0]);
  const uint16_t* value = reinterpret_cast<const uint16_t*>(args[1]);
  float* partial = reinterpret_cast<float*>(args[2]);
  const int64_t heads = args[3], tokens = args[4], head_dim = args[5];
  const int64_t pitch = args[6], block_size = args[7];

  for (int64_t head = 0; head < heads; ++head) {
    float* row = partial + head * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) row[d] = 0.0f;
    for (int64_t token = 0; token < tokens; ++token) {
      const float weight = weights[head * block_size + token];
      for (int64_t d = 0; d < head_dim; ++d) {
        row[d] += weight * from_bfloat16(value[token * pitch + d]);
      }
    }
  }
}
