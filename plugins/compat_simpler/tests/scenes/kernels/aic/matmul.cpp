// out = a @ b, or with the scalar 1, a @ transposed b
#include <cstdint>

#include "tensor.h"

#if !defined(__DAV_CUBE__) || defined(__DAV_VEC__)
#error "this kernel is for cube cores"
#endif

static __aicore__ __gm__ float* data_of(__gm__ ChipTensor* tensor) {
  return reinterpret_cast<__gm__ float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  __gm__ ChipTensor* a = reinterpret_cast<__gm__ ChipTensor*>(args[0]);
  __gm__ ChipTensor* b = reinterpret_cast<__gm__ ChipTensor*>(args[1]);
  __gm__ ChipTensor* out = reinterpret_cast<__gm__ ChipTensor*>(args[2]);
  const uint32_t row = args[3] != 0 ? 1 : 0;
  const uint32_t column = 1 - row;
  for (uint32_t i = 0; i < out->shapes[0]; ++i) {
    for (uint32_t j = 0; j < out->shapes[1]; ++j) {
      float sum = 0;
      for (uint32_t k = 0; k < a->shapes[1]; ++k) {
        sum += data_of(a)[i * a->strides[0] + k * a->strides[1]] *
               data_of(b)[k * b->strides[row] + j * b->strides[column]];
      }
      data_of(out)[i * out->strides[0] + j] = sum;
    }
  }
}
