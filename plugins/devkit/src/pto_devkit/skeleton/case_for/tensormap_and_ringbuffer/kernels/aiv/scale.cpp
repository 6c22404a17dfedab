// out[i] = scale * x[i]; arguments: the tensor x, bit pattern of the float32 scale, the tensor out.

#include <cstdint>
#include <cstring>

#include "tensor.h"

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

static float* first_element(int64_t argument) {
  const TensorData* tensor = reinterpret_cast<const TensorData*>(argument);
  return reinterpret_cast<float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* x = first_element(args[0]);
  float scale;
  std::memcpy(&scale, &args[1], sizeof(scale));
  float* out = first_element(args[2]);
  const uint64_t count = reinterpret_cast<const TensorData*>(args[2])->shapes[0];
  for (uint64_t i = 0; i < count; ++i) out[i] = scale * x[i];
}
