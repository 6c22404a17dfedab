// PV: partial = weights value for the tokens of one block.
//
// Arguments: the tensors weights [heads][block_size] float32, value [1][tokens][1][head_dim]
// bfloat16, a view into the cache [block][token][head][head_dim], and partial [heads][head_dim]
// float32.

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
  const TensorData &factors = tensor(args[0]), &values = tensor(args[1]), &result = tensor(args[2]);
  const float* weights = first_element<const float>(factors);
  const uint16_t* value = first_element<const uint16_t>(values);
  float* partial = first_element<float>(result);
  const uint64_t heads = result.shapes[0], head_dim = result.shapes[1], tokens = values.shapes[1];
  // distance between two tokens
  const uint64_t pitch = values.raw_shapes[2] * values.raw_shapes[3];
  const uint64_t block_size = factors.shapes[1];

  for (uint64_t head = 0; head < heads; ++head) {
    float* row = partial + head * head_dim;
    for (uint64_t d = 0; d < head_dim; ++d) row[d] = 0.0f;
    for (uint64_t token = 0; token < tokens; ++token) {
      const float weight = weights[head * block_size + token];
      for (uint64_t d = 0; d < head_dim; ++d) {
        row[d] += weight * from_bfloat16(value[token * pitch + d]);
      }
    }
  }
}
