/* The cores and scheduler threads of a device.
 *
 * Cores are numbered AIC first: AIC i is core i, AIV j is core blocks + j. Cluster (block) i is
 * {AIC i, AIV 2i, AIV 2i + 1}. Each core belongs to exactly one scheduler thread. All cores of a
 * cluster belong to the same thread.
 */
#ifndef PTO_ABI_TOPOLOGY_H
#define PTO_ABI_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

enum { PTO_CORE_AIC = 0, PTO_CORE_AIV = 1 };

#define PTO_CORE_TYPES 2
#define PTO_MAX_BLOCKS 24
#define PTO_MAX_CORES 72
#define PTO_MAX_AICPU_THREADS 4

typedef struct pto_core_mask {
  uint64_t words[2];
} pto_core_mask;

PTO_ABI_ASSERT(sizeof(pto_core_mask) == 16, "pto_core_mask");

typedef struct pto_topology {
  uint32_t blocks;     /* 1 to PTO_MAX_BLOCKS */
  uint32_t cores;      /* 3 * blocks */
  uint32_t schedulers; /* scheduler threads, 1 to PTO_MAX_AICPU_THREADS */
  uint32_t reserved;
  pto_core_mask thread_cores[PTO_MAX_AICPU_THREADS]; /* the cores of each scheduler thread */
  uint8_t core_type[PTO_MAX_CORES];
} pto_topology;

PTO_ABI_ASSERT(sizeof(pto_topology) == 152, "pto_topology");
PTO_ABI_ASSERT(offsetof(pto_topology, thread_cores) == 16, "pto_topology.thread_cores");
PTO_ABI_ASSERT(offsetof(pto_topology, core_type) == 80, "pto_topology.core_type");

#endif
