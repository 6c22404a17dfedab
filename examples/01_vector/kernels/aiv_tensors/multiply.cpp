// out[i] = x[i] * y[i]; arguments: the tensors x, y, out, all contiguous float32.

#include "pto/abi/kernel.h"
#include "pto/abi/tensor.h"

static __aicore__ __gm__ float* first_element(int64_t argument) {
  const __gm__ pto_tensor_data* tensor = reinterpret_cast<const __gm__ pto_tensor_data*>(argument);
  return reinterpret_cast<__gm__ float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const __gm__ float* x = first_element(args[0]);
  const __gm__ float* y = first_element(args[1]);
  __gm__ float* out = first_element(args[2]);
  const uint64_t count = reinterpret_cast<const __gm__ pto_tensor_data*>(args[2])->shapes[0];
  for (uint64_t i = 0; i < count; ++i) out[i] = x[i] * y[i];
}
