// out = x * y
#include "intrinsic.h"
#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const auto& x = *reinterpret_cast<__gm__ ChipTensor*>(args[0]);
  const auto& y = *reinterpret_cast<__gm__ ChipTensor*>(args[1]);
  const auto& out = *reinterpret_cast<__gm__ ChipTensor*>(args[2]);
  for (uint64_t i = 0; i < out.numel(); ++i) {
    out.data_as<float>()[i] = x.data_as<float>()[i] * y.data_as<float>()[i];
  }
}
