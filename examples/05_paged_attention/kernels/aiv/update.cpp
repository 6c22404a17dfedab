// UP: merges one block into the running softmax; on the last block writes the output.
//
// Arguments: block_max [heads], block_sum [heads], partial [heads][head_dim], running_max [heads],
// running_sum [heads], running_out [heads][head_dim], out [heads][head_dim], heads, head_dim, first
// (1: the running state is not set yet), last (1: write the output). All arrays are float32.

#include <cmath>
#include <cstdint>

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const float* block_max = reinterpret_cast<const float*>(args[0]);
  const float* block_sum = reinterpret_cast<const float*>(args[1]);
  const float* partial = reinterpret_cast<const float*>(args[2]);
  float* running_max = reinterpret_cast<float*>(args[3]);
  float* running_sum = reinterpret_cast<float*>(args[4]);
  float* running_out = reinterpret_cast<float*>(args[5]);
  float* out = reinterpret_cast<float*>(args[6]);
  const int64_t heads = args[7], head_dim = args[8];
  const bool first = args[9] != 0, last = args[10] != 0;

  for (int64_t head = 0; head < heads; ++head) {
    const float* block_row = partial + head * head_dim;
    float* row = running_out + head * head_dim;
    if (first) {
      running_max[head] = block_max[head];
      running_sum[head] = block_sum[head];
      for (int64_t d = 0; d < head_dim; ++d) row[d] = block_row[d];
    } else {
      // The running values and those of the block are relative to their own maxima; rescale both to
      // the larger one.
      const float maximum = std::fmax(running_max[head], block_max[head]);
      const float keep = std::exp(running_max[head] - maximum);
      const float join = std::exp(block_max[head] - maximum);
      running_max[head] = maximum;
      running_sum[head] = running_sum[head] * keep + block_sum[head] * join;
      for (int64_t d = 0; d < head_dim; ++d) row[d] = row[d] * keep + block_row[d] * join;
    }
    if (last) {
      for (int64_t d = 0; d < head_dim; ++d) out[head * head_dim + d] = row[d] / running_sum[head];
    }
  }
}
