// SF: the softmax of one block, not yet divided by its sum.
//
// Arguments: the tensors scores and weights [heads][block_size], block_max and block_sum [heads],
// all float32 and contiguous; tokens, bit pattern of the float32 scale.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor.h"

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

static float* first_element(int64_t argument) {
  const TensorData* view = reinterpret_cast<const TensorData*>(argument);
  return reinterpret_cast<float*>(view->buffer.addr) + view->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const TensorData* shape = reinterpret_cast<const TensorData*>(args[0]);
  const uint64_t heads = shape->shapes[0], block_size = shape->shapes[1];
  const float* scores = first_element(args[0]);
  float* weights = first_element(args[1]);
  float* block_max = first_element(args[2]);
  float* block_sum = first_element(args[3]);
  const uint64_t tokens = static_cast<uint64_t>(args[4]);
  float scale;
  std::memcpy(&scale, &args[5], sizeof(scale));

  for (uint64_t head = 0; head < heads; ++head) {
    const float* row = scores + head * block_size;
    float maximum = row[0] * scale;
    for (uint64_t token = 1; token < tokens; ++token) {
      maximum = std::fmax(maximum, row[token] * scale);
    }
    float sum = 0.0f;
    for (uint64_t token = 0; token < tokens; ++token) {
      const float weight = std::exp(row[token] * scale - maximum);
      weights[head * block_size + token] = weight;
      sum += weight;
    }
    block_max[head] = maximum;
    block_sum[head] = sum;
  }
}
