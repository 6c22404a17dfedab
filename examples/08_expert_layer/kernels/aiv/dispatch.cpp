// Gathers the tokens that selected one expert, in order, and counts them.
//
// Arguments: the tensors x [tokens][hidden] float32, chosen [tokens][top] int32, gathered
// [tokens][hidden] float32 (of which `count` rows are written), count [1] int32; the expert's
// number.

#include "../views.hpp"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* x = first_element<const float>(args[0]);
  const int32_t* chosen = first_element<const int32_t>(args[1]);
  float* gathered = first_element<float>(args[2]);
  int32_t* count = first_element<int32_t>(args[3]);
  const int64_t expert = args[4];
  const uint64_t tokens = tensor(args[0]).shapes[0], hidden = tensor(args[0]).shapes[1];
  const uint64_t top = tensor(args[1]).shapes[1];

  *count = 0;
  for (uint64_t i = 0; i < tokens * top; ++i) {
    if (chosen[i] != expert) continue;
    const float* row = x + i / top * hidden;
    float* target = gathered + static_cast<uint64_t>(*count) * hidden;
    for (uint64_t k = 0; k < hidden; ++k) target[k] = row[k];
    ++*count;
  }
}
