// Waits between the pipes of a core.
#ifndef PTO_PIPE_SYNC_H
#define PTO_PIPE_SYNC_H

#ifndef __aicore__
#define __aicore__
#endif

// Wait until all earlier instructions of this core have completed. In a simulator, each instruction
// completes before the next one.
static __aicore__ inline void pipe_sync() {
#ifdef PTO_AICORE
  pipe_barrier(PIPE_ALL);
#endif
}

#endif
