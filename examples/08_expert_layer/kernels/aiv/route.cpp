// Selects the experts of each token: those with the largest logits, the largest first. Their shares
// are the softmax over the selected experts.
//
// Arguments: the tensors logits [tokens][experts] float32 (overwritten), chosen [tokens][top]
// int32, shares [tokens][top] float32.

#include <cmath>
#include <limits>

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  float* logits = first_element<float>(args[0]);
  int32_t* chosen = first_element<int32_t>(args[1]);
  float* shares = first_element<float>(args[2]);
  const uint64_t tokens = tensor(args[0]).shapes[0], experts = tensor(args[0]).shapes[1];
  const uint64_t top = tensor(args[1]).shapes[1];

  for (uint64_t token = 0; token < tokens; ++token, logits += experts) {
    float largest = 0.0f, sum = 0.0f;
    for (uint64_t place = 0; place < top; ++place) {
      uint64_t best = 0;
      for (uint64_t expert = 1; expert < experts; ++expert) {
        if (logits[expert] > logits[best]) best = expert;
      }
      if (place == 0) largest = logits[best];
      const float share = std::exp(logits[best] - largest);
      logits[best] = -std::numeric_limits<float>::infinity();
      chosen[token * top + place] = static_cast<int32_t>(best);
      shares[token * top + place] = share;
      sum += share;
    }
    for (uint64_t place = 0; place < top; ++place) shares[token * top + place] /= sum;
  }
}
