/* A page in which a backend records the running kernels, to explain crashes and hangs, and to show
 * what a program is doing (`pto top`).
 *
 * Each thread that runs kernels has a slot, which only this thread writes, with relaxed stores.
 * Before a kernel it writes task, core and func_id, then an odd `sequence`. After the kernel it
 * writes an even `sequence`. So a reader (another thread, a signal handler, another process through
 * a shared mapping) knows from an odd sequence that the kernel is running. If the parent passes a
 * file descriptor in option "activity_fd", the page is a mapping of it, and the parent reports
 * crashes. Otherwise the backend maps an unnamed file whose name in /proc starts with "pto-", and
 * keeps it open; if it cannot, the page is private memory.
 *
 * The core writes `seen`, `seen_ns`, `text` and `text_sequence`, at least every 50 ms while it
 * waits for a run. A reader that wants the text writes the time to `asked_ns`. The text is complete
 * if `text_sequence` is even and is the same before and after it was read.
 */
#ifndef PTO_ABI_ACTIVITY_H
#define PTO_ABI_ACTIVITY_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

#define PTO_ACTIVITY_MAGIC 0x41435450u /* "PTCA" */
#define PTO_ACTIVITY_VERSION 1u        /* of the layout of the page */
#define PTO_ACTIVITY_SLOTS 190
#define PTO_ACTIVITY_KERNELS 64
#define PTO_ACTIVITY_TEXT_BYTES 4096

typedef struct pto_activity_slot {
  uint64_t sequence; /* odd while a kernel runs */
  uint64_t task;
  int32_t func_id;
  int32_t core;
  uint64_t kernel;
  uint64_t signal;       /* the fatal signal that this thread received, or 0 */
  uint64_t orchestrates; /* 1 while this thread runs the orchestration */
  uint64_t seen;         /* the last odd `sequence` that the core has seen */
  uint64_t seen_ns;      /* when it first saw it (CLOCK_MONOTONIC) */
} pto_activity_slot;

PTO_ABI_ASSERT(sizeof(pto_activity_slot) == 64, "a slot is one cache line");
PTO_ABI_ASSERT(offsetof(pto_activity_slot, signal) == 32, "pto_activity_slot.signal");
PTO_ABI_ASSERT(offsetof(pto_activity_slot, orchestrates) == 40, "pto_activity_slot.orchestrates");
PTO_ABI_ASSERT(offsetof(pto_activity_slot, seen) == 48, "pto_activity_slot.seen");

/* The name of a loaded kernel, cut to the space for it. */
typedef struct pto_activity_kernel {
  uint64_t kernel; /* as in a slot; 0: the entry is free */
  char name[56];
} pto_activity_kernel;

PTO_ABI_ASSERT(sizeof(pto_activity_kernel) == 64, "pto_activity_kernel");

typedef struct pto_activity_page {
  uint32_t magic;
  uint32_t version; /* PTO_ACTIVITY_VERSION */
  uint32_t slots;   /* number of slots in use */
  int32_t device;
  uint32_t capabilities; /* of the newest runtime; RING_IDS selects the format of task names */
  int32_t process;       /* the process that opened the device */
  uint64_t asked_ns;     /* when a reader last asked for the text (CLOCK_MONOTONIC) */
  uint64_t text_sequence;
  uint32_t blocks; /* of the last run: the cores with a lower number are AIC cores */
  uint32_t reserved;
  char variant[48]; /* the newest runtime */
  uint64_t pad[4];
  pto_activity_slot slot[PTO_ACTIVITY_SLOTS];
  pto_activity_kernel kernel[PTO_ACTIVITY_KERNELS]; /* of the first kernels that were loaded */
  char text[PTO_ACTIVITY_TEXT_BYTES];               /* what explain() of the runtime last wrote */
} pto_activity_page;

PTO_ABI_ASSERT(sizeof(pto_activity_page) == 20480, "pto_activity_page");
PTO_ABI_ASSERT(offsetof(pto_activity_page, capabilities) == 16, "pto_activity_page.capabilities");
PTO_ABI_ASSERT(offsetof(pto_activity_page, asked_ns) == 24, "pto_activity_page.asked_ns");
PTO_ABI_ASSERT(offsetof(pto_activity_page, blocks) == 40, "pto_activity_page.blocks");
PTO_ABI_ASSERT(offsetof(pto_activity_page, slot) == 128, "pto_activity_page.slot");
PTO_ABI_ASSERT(offsetof(pto_activity_page, kernel) == 12288, "pto_activity_page.kernel");
PTO_ABI_ASSERT(offsetof(pto_activity_page, text) == 16384, "pto_activity_page.text");

#endif
