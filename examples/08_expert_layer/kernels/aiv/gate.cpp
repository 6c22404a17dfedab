// hidden = silu(gate) up for the first `count` rows, with silu(x) = x / (1 + exp(-x)).
//
// Arguments: the tensors gate and up [tokens][width], count [1] int32, hidden [tokens][width]. The
// others are float32.

#include <cmath>

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* gate = first_element<const float>(args[0]);
  const float* up = first_element<const float>(args[1]);
  const int32_t count = *first_element<const int32_t>(args[2]);
  float* hidden = first_element<float>(args[3]);
  const uint64_t elements = static_cast<uint64_t>(count) * tensor(args[0]).shapes[1];
  for (uint64_t i = 0; i < elements; ++i) hidden[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}
