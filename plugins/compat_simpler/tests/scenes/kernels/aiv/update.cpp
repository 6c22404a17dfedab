// Add the part (maximum, sum, values) to the accumulators of the same meaning; write `out` at last.
#include <cmath>
#include <cstdint>

#include "tensor.h"

static float* data_of(const ChipTensor* tensor) {
  return reinterpret_cast<float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const ChipTensor* tensors[7];
  for (int i = 0; i < 7; ++i) tensors[i] = reinterpret_cast<ChipTensor*>(args[i]);
  const auto [part_max, part_sum, part, all_max, all_sum, all, out] = tensors;
  const bool is_first = args[7] != 0;
  const bool is_last = args[8] != 0;
  for (uint32_t i = 0; i < part->shapes[0]; ++i) {
    const float old = is_first ? -INFINITY : data_of(all_max)[i];
    const float most = std::fmax(old, data_of(part_max)[i]);
    const float keep = is_first ? 0.0f : std::exp(old - most);
    const float add = std::exp(data_of(part_max)[i] - most);
    const float sum = (is_first ? 0.0f : keep * data_of(all_sum)[i]) + add * data_of(part_sum)[i];
    for (uint32_t j = 0; j < part->shapes[1]; ++j) {
      float* value = data_of(all) + i * all->strides[0] + j;
      *value = (is_first ? 0.0f : keep * *value) + add * data_of(part)[i * part->strides[0] + j];
      if (is_last) data_of(out)[i * out->strides[0] + j] = *value / sum;
    }
    data_of(all_max)[i] = most;
    data_of(all_sum)[i] = sum;
  }
}
