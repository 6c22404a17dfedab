// Access to the elements of two-dimensional tensors.
#pragma once

#include "intrinsic.h"
#include "tensor.h"

inline const ChipTensor& tensor(__gm__ int64_t* args, int index) {
  return *reinterpret_cast<const ChipTensor*>(args[index]);
}

inline float* element(const ChipTensor& tensor, uint32_t row, uint32_t column) {
  const uint32_t indices[] = {row, column};
  return reinterpret_cast<float*>(tensor.buffer.addr) + tensor.compute_flat_offset(indices, 2);
}

inline float number(int64_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void add_to_rows(const ChipTensor& tensor, uint32_t begin, uint32_t end, float summand) {
  for (uint32_t row = begin; row < end; ++row) {
    for (uint32_t column = 0; column < tensor.shapes[1]; ++column) {
      *element(tensor, row, column) += summand;
    }
  }
}
