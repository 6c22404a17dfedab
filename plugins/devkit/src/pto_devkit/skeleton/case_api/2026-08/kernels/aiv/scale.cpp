// out[i] = scale * x[i]; arguments: the tensors x and out, bit pattern of the float32 scale.

#include <cstring>

#include "intrinsic.h"
#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const auto& x = *reinterpret_cast<__gm__ ChipTensor*>(args[0]);
  const auto& out = *reinterpret_cast<__gm__ ChipTensor*>(args[1]);
  float scale;
  std::memcpy(&scale, &args[2], sizeof(scale));
  for (uint64_t i = 0; i < out.numel(); ++i) {
    out.data_as<float>()[i] = scale * x.data_as<float>()[i];
  }
}
