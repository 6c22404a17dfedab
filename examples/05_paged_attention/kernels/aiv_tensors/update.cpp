// UP: merges one block into the running softmax; on the last block writes the output.
//
// Arguments: the tensors block_max [heads], block_sum [heads], partial [heads][head_dim],
// running_max [heads], running_sum [heads], running_out [heads][head_dim], out [heads][head_dim],
// all float32 and contiguous; first (1: the running state is not set yet), last (1: write the
// output).

#include <cmath>
#include <cstdint>

#include "tensor.h"

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

static float* first_element(int64_t argument) {
  const TensorData* view = reinterpret_cast<const TensorData*>(argument);
  return reinterpret_cast<float*>(view->buffer.addr) + view->start_offset;
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const TensorData* shape = reinterpret_cast<const TensorData*>(args[2]);
  const uint64_t heads = shape->shapes[0], head_dim = shape->shapes[1];
  const float* block_max = first_element(args[0]);
  const float* block_sum = first_element(args[1]);
  const float* partial = first_element(args[2]);
  float* running_max = first_element(args[3]);
  float* running_sum = first_element(args[4]);
  float* running_out = first_element(args[5]);
  float* out = first_element(args[6]);
  const bool first = args[7] != 0, last = args[8] != 0;

  for (uint64_t head = 0; head < heads; ++head) {
    const float* block_row = partial + head * head_dim;
    float* row = running_out + head * head_dim;
    if (first) {
      running_max[head] = block_max[head];
      running_sum[head] = block_sum[head];
      for (uint64_t d = 0; d < head_dim; ++d) row[d] = block_row[d];
    } else {
      // The running values and those of the block are relative to their own maxima; rescale both to
      // the larger one.
      const float maximum = std::fmax(running_max[head], block_max[head]);
      const float keep = std::exp(running_max[head] - maximum);
      const float join = std::exp(block_max[head] - maximum);
      running_max[head] = maximum;
      running_sum[head] = running_sum[head] * keep + block_sum[head] * join;
      for (uint64_t d = 0; d < head_dim; ++d) row[d] = row[d] * keep + block_row[d] * join;
    }
    if (last) {
      for (uint64_t d = 0; d < head_dim; ++d) out[head * head_dim + d] = row[d] / running_sum[head];
    }
  }
}
