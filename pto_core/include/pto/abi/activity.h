/* The page in which a backend notes the running kernels, to explain crashes and hangs.
 *
 * There is one slot for each thread that runs kernels. Only this thread writes the slot, with
 * relaxed stores: task, core, func_id, then an odd `sequence` before the kernel and an even one
 * after it. For a reader (another thread, a signal handler, the parent process through a shared
 * mapping) an odd sequence means that the kernel is running. The page is a mapping of the parent's
 * file descriptor (option "activity_fd") if there is one, otherwise private memory.
 */
#ifndef PTO_ABI_ACTIVITY_H
#define PTO_ABI_ACTIVITY_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

#define PTO_ACTIVITY_MAGIC 0x41435450u /* "PTCA" */
#define PTO_ACTIVITY_SLOTS 62

typedef struct pto_activity_slot {
  uint64_t sequence; /* odd while a kernel runs */
  uint64_t task;
  int32_t func_id;
  int32_t core;
  uint64_t kernel;
  uint64_t signal;       /* the fatal signal that this thread received, or 0 */
  uint64_t orchestrates; /* 1 while this thread runs the orchestration */
  uint64_t pad[2];
} pto_activity_slot;

PTO_ABI_ASSERT(sizeof(pto_activity_slot) == 64, "one cache line per thread");
PTO_ABI_ASSERT(offsetof(pto_activity_slot, signal) == 32, "pto_activity_slot.signal");
PTO_ABI_ASSERT(offsetof(pto_activity_slot, orchestrates) == 40, "pto_activity_slot.orchestrates");

typedef struct pto_activity_page {
  uint32_t magic;
  uint32_t version; /* PTO_ABI_VERSION */
  uint32_t slots;   /* slots in use */
  int32_t device;
  uint32_t capabilities; /* of the last attached runtime: RING_IDS defines the names of tasks */
  uint32_t reserved;
  uint64_t pad[13];
  pto_activity_slot slot[PTO_ACTIVITY_SLOTS];
} pto_activity_page;

PTO_ABI_ASSERT(sizeof(pto_activity_page) == 4096, "one page");
PTO_ABI_ASSERT(offsetof(pto_activity_page, capabilities) == 16, "pto_activity_page.capabilities");
PTO_ABI_ASSERT(offsetof(pto_activity_page, slot) == 128, "pto_activity_page.slot");

#endif
