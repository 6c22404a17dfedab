// weights, maximum and sum of the softmax of each row of `scores`; scalars: scale, valid columns
#include <cmath>
#include <cstdint>

#include "tensor.h"

#ifndef __DAV_VEC__
#error "this kernel is for vector cores"
#endif

static float* data_of(const ChipTensor* tensor) {
  return reinterpret_cast<float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  auto* scores = reinterpret_cast<ChipTensor*>(args[0]);
  auto* weights = reinterpret_cast<ChipTensor*>(args[1]);
  auto* maximum = reinterpret_cast<ChipTensor*>(args[2]);
  auto* sum = reinterpret_cast<ChipTensor*>(args[3]);
  union {
    uint64_t bits;
    float value;
  } scale;
  scale.bits = static_cast<uint64_t>(args[4]);
  const auto valid = static_cast<uint32_t>(args[5]);
  for (uint32_t i = 0; i < scores->shapes[0]; ++i) {
    const float* row = data_of(scores) + i * scores->strides[0];
    float most = -INFINITY;
    for (uint32_t j = 0; j < valid; ++j) most = std::fmax(most, row[j] * scale.value);
    float total = 0;
    for (uint32_t j = 0; j < scores->shapes[1]; ++j) {
      const float weight = j < valid ? std::exp(row[j] * scale.value - most) : 0.0f;
      data_of(weights)[i * weights->strides[0] + j] = weight;
      total += weight;
    }
    data_of(maximum)[i] = most;
    data_of(sum)[i] = total;
  }
}
