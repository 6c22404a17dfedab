/* A page in which a backend records the running kernels, to explain crashes and hangs.
 *
 * Each thread that runs kernels has a slot, which only this thread writes, with relaxed stores.
 * Before a kernel it writes task, core and func_id, then an odd `sequence`. After the kernel it
 * writes an even `sequence`. So a reader (another thread, a signal handler, the parent process
 * through a shared mapping) knows from an odd sequence that the kernel is running. If the parent
 * passes a file descriptor in option "activity_fd", the page is a mapping of it, otherwise private
 * memory.
 */
#ifndef PTO_ABI_ACTIVITY_H
#define PTO_ABI_ACTIVITY_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

#define PTO_ACTIVITY_MAGIC 0x41435450u /* "PTCA" */
#define PTO_ACTIVITY_SLOTS 190

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

PTO_ABI_ASSERT(sizeof(pto_activity_slot) == 64, "a slot is one cache line");
PTO_ABI_ASSERT(offsetof(pto_activity_slot, signal) == 32, "pto_activity_slot.signal");
PTO_ABI_ASSERT(offsetof(pto_activity_slot, orchestrates) == 40, "pto_activity_slot.orchestrates");

typedef struct pto_activity_page {
  uint32_t magic;
  uint32_t version; /* PTO_ABI_VERSION */
  uint32_t slots;   /* number of slots in use */
  int32_t device;
  uint32_t capabilities; /* of the newest runtime; RING_IDS selects the format of task names */
  uint32_t reserved;
  uint64_t pad[13];
  pto_activity_slot slot[PTO_ACTIVITY_SLOTS];
} pto_activity_page;

PTO_ABI_ASSERT(sizeof(pto_activity_page) == 12288, "pto_activity_page");
PTO_ABI_ASSERT(offsetof(pto_activity_page, capabilities) == 16, "pto_activity_page.capabilities");
PTO_ABI_ASSERT(offsetof(pto_activity_page, slot) == 128, "pto_activity_page.slot");

#endif
