// SF: the softmax of one block, not yet divided by its sum.
//
// Arguments: scores and weights [heads][block_size], block_max and block_sum [heads], heads,
// tokens, block_size, bit pattern of the float32 scale. All arrays are float32.

#include <cmath>
#include <cstdint>
#include <cstring>

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* scores = reinterpret_cast<const float*>(args[0]);
  float* weights = reinterpret_cast<float*>(args[1]);
  float* block_max = reinterpret_cast<float*>(args[2]);
  float* block_sum = reinterpret_cast<float*>(args[3]);
  const int64_t heads = args[4], tokens = args[5], block_size = args[6];
  float scale;
  std::memcpy(&scale, &args[7], sizeof(scale));

  for (int64_t head = 0; head < heads; ++head) {
    const float* row = scores + head * block_size;
    float maximum = row[0] * scale;
    for (int64_t token = 1; token < tokens; ++token) {
      maximum = std::fmax(maximum, row[token] * scale);
    }
    float sum = 0.0f;
    for (int64_t token = 0; token < tokens; ++token) {
      const float weight = std::exp(row[token] * scale - maximum);
      weights[head * block_size + token] = weight;
      sum += weight;
    }
    block_max[head] = maximum;
    block_sum[head] = sum;
  }
}
