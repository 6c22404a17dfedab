// The arguments of a step, which all lanes of its mixed task receive.
#pragma once

#include <cstring>

#include "intrinsic.h"
#include "tensor.h"

struct Step {
  explicit Step(__gm__ int64_t* args)
      : query(tensor(args, 0)),
        keys(tensor(args, 1)),
        next(tensor(args, 2)),
        scores(tensor(args, 3)),
        values(tensor(args, 4)),
        top(tensor(args, 5)),
        sum(tensor(args, 6)),
        mean(tensor(args, 7)),
        tokens(static_cast<uint32_t>(args[8])) {
    std::memcpy(&scale, &args[9], sizeof scale);
  }

  static __gm__ float* tensor(__gm__ int64_t* args, int index) {
    return reinterpret_cast<__gm__ ChipTensor*>(args[index])->data_as<float>();
  }

  __gm__ const float* query;   // heads x dim
  __gm__ const float* keys;    // block x dim, for `next`
  __gm__ float* next;          // heads x block, written by AIC
  __gm__ const float* scores;  // heads x block, of the block of `values`
  __gm__ const float* values;  // block x dim
  __gm__ float* top;           // heads: the largest score so far
  __gm__ float* sum;           // heads: of the weights so far
  __gm__ float* mean;          // heads x dim: of the weighted values so far
  uint32_t tokens;             // in the block of `values`
  float scale;
};

constexpr uint32_t kHeads = 16;
constexpr uint32_t kDim = 16;
constexpr uint32_t kBlock = 16;
