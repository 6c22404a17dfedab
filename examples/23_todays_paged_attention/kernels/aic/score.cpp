// next = scale * query * keys^T
#include "../step.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const Step step(args);
  for (uint32_t head = 0; head < kHeads; ++head) {
    for (uint32_t token = 0; token < kBlock; ++token) {
      float product = 0;
      for (uint32_t i = 0; i < kDim; ++i) {
        product += step.query[head * kDim + i] * step.keys[token * kDim + i];
      }
      step.next[head * kBlock + token] = product * step.scale;
    }
  }
}
