#include "operation.h"
#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  __gm__ ChipTensor* a = reinterpret_cast<__gm__ ChipTensor*>(args[0]);
  __gm__ ChipTensor* b = reinterpret_cast<__gm__ ChipTensor*>(args[1]);
  __gm__ ChipTensor* out = reinterpret_cast<__gm__ ChipTensor*>(args[2]);
  __gm__ float* x = reinterpret_cast<__gm__ float*>(a->buffer.addr) + a->start_offset;
  __gm__ float* y = reinterpret_cast<__gm__ float*>(b->buffer.addr) + b->start_offset;
  __gm__ float* z = reinterpret_cast<__gm__ float*>(out->buffer.addr) + out->start_offset;
  for (uint64_t i = 0; i < out->numel(); ++i) z[i] = OPERATION(x[i], y[i]);
}
