// The kernels of the test orchestrations, which read TensorData as published kernels do.
#pragma once

#include "device.hpp"
#include "tensor_data.h"

struct KernelArgs {
  const uint64_t* words;

  explicit KernelArgs(const pto_payload& payload)
      : words(reinterpret_cast<const uint64_t*>(&payload + 1)) {}

  const TensorData& tensor(int index) const {
    return *reinterpret_cast<const TensorData*>(words[index]);
  }
  float* floats(int index) const {
    return reinterpret_cast<float*>(tensor(index).buffer.addr) + tensor(index).start_offset;
  }
};

// Adds three kernels on tensors with one dimension. Function 0 (AIV): out = in + constant. Function
// 1 (AIC): out = left * right. Function 2 (AIV): one block of out = in + 1.
inline void add_tensor_kernels(TestDevice& device) {
  device.add_kernel(0, PTO_CORE_AIV, [](const pto_payload& payload) {
    if (payload.num_args < 3) return 0;
    const KernelArgs args(payload);
    for (uint64_t i = 0; i < args.tensor(1).shapes[0]; ++i) {
      args.floats(1)[i] = args.floats(0)[i] + static_cast<float>(args.words[2]);
    }
    return 0;
  });
  device.add_kernel(1, PTO_CORE_AIC, [](const pto_payload& payload) {
    const KernelArgs args(payload);
    for (uint64_t i = 0; i < args.tensor(2).shapes[0]; ++i) {
      args.floats(2)[i] = args.floats(0)[i] * args.floats(1)[i];
    }
    return 0;
  });
  device.add_kernel(2, PTO_CORE_AIV, [](const pto_payload& payload) {
    const KernelArgs args(payload);
    const uint64_t part = args.tensor(1).shapes[0] / args.words[2];
    for (uint64_t i = args.words[3] * part; i < (args.words[3] + 1) * part; ++i) {
      args.floats(1)[i] = args.floats(0)[i] + 1;
    }
    return 0;
  });
}
