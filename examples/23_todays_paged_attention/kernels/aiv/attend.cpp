// Add a block to the running softmax. Each of the two lanes has half of the heads.
#include <algorithm>
#include <cmath>

#include "../step.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const Step step(args);
  const uint32_t first = static_cast<uint32_t>(get_sub_block_id(args)) * kHeads / 2;
  for (uint32_t head = first; head < first + kHeads / 2; ++head) {
    const float* scores = step.scores + head * kBlock;
    const float top = std::max(step.top[head], *std::max_element(scores, scores + step.tokens));
    const float rescale = std::exp(step.top[head] - top);
    float* mean = step.mean + head * kDim;
    for (uint32_t i = 0; i < kDim; ++i) mean[i] *= rescale;
    step.sum[head] *= rescale;
    for (uint32_t token = 0; token < step.tokens; ++token) {
      const float weight = std::exp(scores[token] - top);
      step.sum[head] += weight;
      for (uint32_t i = 0; i < kDim; ++i) mean[i] += weight * step.values[token * kDim + i];
    }
    step.top[head] = top;
  }
}
