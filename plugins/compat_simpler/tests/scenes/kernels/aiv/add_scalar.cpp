#include <cstring>

#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  __gm__ ChipTensor* in = reinterpret_cast<__gm__ ChipTensor*>(args[0]);
  __gm__ ChipTensor* out = reinterpret_cast<__gm__ ChipTensor*>(args[1]);
  float summand;
  std::memcpy(&summand, &args[2], sizeof summand);
  __gm__ float* x = reinterpret_cast<__gm__ float*>(in->buffer.addr) + in->start_offset;
  __gm__ float* y = reinterpret_cast<__gm__ float*>(out->buffer.addr) + out->start_offset;
  for (uint64_t i = 0; i < out->numel(); ++i) y[i] = x[i] + summand;
}
