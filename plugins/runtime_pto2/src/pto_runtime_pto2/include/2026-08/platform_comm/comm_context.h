// The windows of the chips of a domain (orch.allocate_domain of level 3). An orchestration and its
// kernels receive the address of the context of their chip as a scalar.
//
// Each chip of the domain has a rank and a window in its memory, winSize bytes long. windowsIn[r]
// is the address of the window of rank r, valid on the chip of this context. Windows of all chips
// have the same layout, so an address in the own window corresponds to the address in the window of
// rank r with the same distance from the start.
#ifndef PTO_COMM_CONTEXT_H
#define PTO_COMM_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#define COMM_MAX_RANK_NUM 64

struct CommContext {
  uint64_t workSpace;  // 0 on the simulator, as is its size
  uint64_t workSpaceSize;
  uint32_t rankId;
  uint32_t rankNum;
  uint64_t winSize;
  uint64_t windowsIn[COMM_MAX_RANK_NUM];
  uint64_t windowsOut[COMM_MAX_RANK_NUM];  // equal to windowsIn: a chip has one window
};

static_assert(sizeof(CommContext) == 1056, "CommContext");
static_assert(offsetof(CommContext, windowsIn) == 32, "CommContext.windowsIn");

#endif
