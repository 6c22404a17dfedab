/* The page in which a backend notes what runs, for whoever has to explain a crash or a hang.
 *
 * One slot per thread that runs kernels. The thread alone writes its slot, with plain relaxed
 * stores: task, core, func_id, then `sequence` odd before the kernel and even after it. A reader
 * (another thread, a signal handler, the parent process through a shared mapping) takes an odd
 * sequence as "this kernel is running". The page is a file descriptor of the parent where there is
 * one (option "activity_fd"), private memory otherwise.
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
  uint64_t signal;       /* the fatal signal that this thread got, 0 while there is none */
  uint64_t orchestrates; /* 1 while this thread runs the orchestration */
  uint64_t pad[2];
} pto_activity_slot;

PTO_ABI_ASSERT(sizeof(pto_activity_slot) == 64, "one cache line a thread");
PTO_ABI_ASSERT(offsetof(pto_activity_slot, signal) == 32, "pto_activity_slot.signal");
PTO_ABI_ASSERT(offsetof(pto_activity_slot, orchestrates) == 40, "pto_activity_slot.orchestrates");

typedef struct pto_activity_page {
  uint32_t magic;
  uint32_t version; /* PTO_ABI_VERSION */
  uint32_t slots;   /* slots in use */
  int32_t device;
  uint32_t
      capabilities; /* of the runtime that was attached last: RING_IDS tells how tasks are named */
  uint32_t reserved;
  uint64_t pad[13];
  pto_activity_slot slot[PTO_ACTIVITY_SLOTS];
} pto_activity_page;

PTO_ABI_ASSERT(sizeof(pto_activity_page) == 4096, "one page");
PTO_ABI_ASSERT(offsetof(pto_activity_page, capabilities) == 16, "pto_activity_page.capabilities");
PTO_ABI_ASSERT(offsetof(pto_activity_page, slot) == 128, "pto_activity_page.slot");

#endif
