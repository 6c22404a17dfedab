// Published compile-time constants, for orchestrations and kernels that name them. The sizes are
// the defaults; the settings pto2.* change the sizes of a run.
#ifndef PTO_RUNTIME2_TYPES_H
#define PTO_RUNTIME2_TYPES_H

#include "pto_types.h"

#define PTO2_MAX_RING_DEPTH 4               // rings; scopes at greater depths share the last one
#define PTO2_TASK_WINDOW_SIZE 65536         // tasks of each ring
#define PTO2_HEAP_SIZE (1ULL << 30)         // bytes of each heap ring
#define PTO2_DEP_LIST_POOL_SIZE 65536       // edges of each ring
#define PTO2_TENSORMAP_POOL_SIZE 65536      // regions that live tasks write
#define PTO2_TENSORMAP_NUM_BUCKETS 65536    // no counterpart in this runtime
#define PTO2_TENSORMAP_CLEANUP_INTERVAL 64  // no counterpart in this runtime
#define PTO2_ALIGN_SIZE 64                  // bytes
#define PTO2_PACKED_OUTPUT_ALIGN 1024       // bytes; the alignment of outputs in a heap ring

#endif
