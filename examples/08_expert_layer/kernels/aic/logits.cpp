// logits = x w; arguments: the tensors x [tokens][hidden], w [hidden][experts], logits [tokens]
// [experts], float32.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* x = first_element<const float>(args[0]);
  const float* w = first_element<const float>(args[1]);
  float* logits = first_element<float>(args[2]);
  const uint64_t tokens = tensor(args[0]).shapes[0], hidden = tensor(args[0]).shapes[1];
  const uint64_t experts = tensor(args[1]).shapes[1];

  for (uint64_t token = 0; token < tokens; ++token) {
    float* row = logits + token * experts;
    for (uint64_t expert = 0; expert < experts; ++expert) row[expert] = 0.0f;
    for (uint64_t k = 0; k < hidden; ++k) {
      const float factor = x[token * hidden + k];
      for (uint64_t expert = 0; expert < experts; ++expert) {
        row[expert] += factor * w[k * experts + expert];
      }
    }
  }
}
