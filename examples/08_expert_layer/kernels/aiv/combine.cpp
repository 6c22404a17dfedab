// out = x + the results of the experts, weighted by their shares, for one tile of tokens.
//
// Arguments: the tensors x [tile][hidden] float32, chosen [tokens][top] int32, shares [tokens][top]
// float32, answers [experts][tokens][hidden] float32, out [tile][hidden] float32; the number of the
// tile's first token. The answers of an expert are in the order of the tokens that selected it.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* x = first_element<const float>(args[0]);
  const int32_t* chosen = first_element<const int32_t>(args[1]);
  const float* shares = first_element<const float>(args[2]);
  const float* answers = first_element<const float>(args[3]);
  float* out = first_element<float>(args[4]);
  const uint64_t first = static_cast<uint64_t>(args[5]);
  const uint64_t tile = tensor(args[0]).shapes[0], hidden = tensor(args[0]).shapes[1];
  const uint64_t tokens = tensor(args[1]).shapes[0], top = tensor(args[1]).shapes[1];

  for (uint64_t row = 0; row < tile; ++row, x += hidden, out += hidden) {
    for (uint64_t k = 0; k < hidden; ++k) out[k] = x[k];
    const uint64_t start = (first + row) * top;
    for (uint64_t i = start; i < start + top; ++i) {
      uint64_t earlier = 0;  // number of earlier tokens that selected the same expert
      for (uint64_t j = 0; j < start; ++j) earlier += chosen[j] == chosen[i];
      const uint64_t place = static_cast<uint64_t>(chosen[i]) * tokens + earlier;
      for (uint64_t k = 0; k < hidden; ++k) out[k] += shares[i] * answers[place * hidden + k];
    }
  }
}
