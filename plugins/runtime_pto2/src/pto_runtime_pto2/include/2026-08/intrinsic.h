// What a kernel knows of its task, besides its arguments.
#ifndef PTO_INTRINSIC_H
#define PTO_INTRINSIC_H

#include <stdint.h>

#ifndef __aicore__
#define __aicore__
#endif
#ifndef __gm__
#define __gm__
#endif

#define PTO2_LOCAL_CONTEXT_INDEX 48
#define PTO2_GLOBAL_CONTEXT_INDEX 49

struct LocalContext {
  int32_t block_idx;
  int32_t block_num;
};

struct GlobalContext {
  int32_t sub_block_id;  // AIV lane of the core in a task that occupies several cores
  uint32_t reserved;
  uint64_t dma_workspace[7];
};

namespace pto_kernel {
static __aicore__ inline __gm__ LocalContext* local_context(__gm__ int64_t* args) {
  return (__gm__ LocalContext*)args[PTO2_LOCAL_CONTEXT_INDEX];
}
static __aicore__ inline __gm__ GlobalContext* global_context(__gm__ int64_t* args) {
  return (__gm__ GlobalContext*)args[PTO2_GLOBAL_CONTEXT_INDEX];
}
}  // namespace pto_kernel

// Return the number of this block, from 0.
static __aicore__ inline int32_t get_block_idx(__gm__ int64_t* args) {
  return pto_kernel::local_context(args)->block_idx;
}
// Return the number of blocks of the task.
static __aicore__ inline int32_t get_block_num(__gm__ int64_t* args) {
  return pto_kernel::local_context(args)->block_num;
}
// Return the AIV lane of this core in a task that occupies several cores: 0 or 1.
static __aicore__ inline int32_t get_sub_block_id(__gm__ int64_t* args) {
  return pto_kernel::global_context(args)->sub_block_id;
}
// Return the address of a workspace for transfers of this kind; 0 if there is none.
static __aicore__ inline uint64_t get_dma_workspace(__gm__ int64_t* args, int32_t kind) {
  return pto_kernel::global_context(args)->dma_workspace[kind];
}

#endif
