// The two kernels of the test orchestrations, and a function that runs one orchestration.
#pragma once

#include <string>
#include <vector>

#include "device.hpp"

// Adds two kernels. Function 0 (AIV): out[i] = in[i] + constant. Function 1 (AIC): out[i] = left[i]
// * right[i].
inline void add_float_kernels(TestDevice& device) {
  const auto floats = [](uint64_t address) { return reinterpret_cast<float*>(address); };
  device.add_kernel(0, PTO_CORE_AIV, [floats](const pto_payload& payload) {
    const auto* args = reinterpret_cast<const uint64_t*>(&payload + 1);
    for (uint64_t i = 0; i < args[3]; ++i) {
      floats(args[1])[i] = floats(args[0])[i] + static_cast<float>(args[2]);
    }
    return 0;
  });
  device.add_kernel(1, PTO_CORE_AIC, [floats](const pto_payload& payload) {
    const auto* args = reinterpret_cast<const uint64_t*>(&payload + 1);
    for (uint64_t i = 0; i < args[3]; ++i) {
      floats(args[2])[i] = floats(args[0])[i] * floats(args[1])[i];
    }
    return 0;
  });
}

inline std::string orchestration(const std::string& variant, const std::string& entry) {
  return std::string(PTO_ORCHESTRATION_DIRECTORY) + "/" + variant + "_" + entry + ".so";
}
