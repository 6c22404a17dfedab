/* The platform table: the functions that a backend offers to the runtime that it drives.
 *
 * The backend fills one pto_platform per attached runtime and keeps it alive until destroy(). The
 * runtime owns no thread and never sleeps; it calls these functions only inside calls that the
 * backend makes into it. Below, "orchestrator" is the thread inside orchestrate() or submit(), and
 * "scheduler t" the thread inside schedule_step(t). Unless stated otherwise, both may call each
 * function, and none of them blocks.
 */
#ifndef PTO_ABI_PLATFORM_H
#define PTO_ABI_PLATFORM_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/payload.h"
#include "pto/abi/status.h"
#include "pto/abi/topology.h"
#include "pto/abi/trace.h"
#include "pto/abi/version.h"

/* ALWAYS: output that the user requested; shown at every level. */
enum {
  PTO_LOG_ALWAYS = -1,
  PTO_LOG_ERROR = 0,
  PTO_LOG_WARN = 1,
  PTO_LOG_INFO = 2,
  PTO_LOG_DEBUG = 3
};

/* The points at which a runtime calls pto_yield(), so that another agent may run first. */
enum {
  PTO_YIELD_SUBMIT = 1,   /* after a task has become visible to the schedulers */
  PTO_YIELD_EDGE = 2,     /* before an edge is added */
  PTO_YIELD_PUBLISH = 3,  /* before a task is published */
  PTO_YIELD_COMPLETE = 4, /* after a task has completed, before its successors are released */
  PTO_YIELD_RELEASE = 5,  /* after each release of a successor */
  PTO_YIELD_BLOCKED = 6   /* repeatedly while a submit waits */
};

typedef struct pto_poll_result {
  pto_core_mask done;    /* cores that finished since the last poll; each is reported once */
  pto_core_mask faulted; /* the subset of `done` whose kernel failed; see fault() */
} pto_poll_result;

PTO_ABI_ASSERT(sizeof(pto_poll_result) == 32, "pto_poll_result");

typedef struct pto_platform {
  uint32_t abi_version;
  uint32_t struct_size;
  void* self;
  const pto_topology* topology; /* constant during a run; may change between runs */
  uint32_t deterministic;       /* non-zero: pto_yield() calls `yield` */
  uint32_t tracing;             /* PTO_TRACE_* groups of this run; 0: there is no trace */
  uint32_t checking;            /* non-zero: the runtime calls check_*() and lend() */
  uint32_t timing;              /* non-zero: the runtime records when each task starts and ends */
  uint32_t clock;               /* PTO_CLOCK_*: the clock of trace records */
  /* non-zero: after a proven deadlock the runtime may plan, with reserve() of sparse memory, many
   * GiB in total, and exact answers of touched() */
  uint32_t planning;
  pto_trace_ring* tracks; /* one ring for each track of the run's trace; NULL without one */
  const uint64_t* steps; /* PTO_CLOCK_STEPS: the number of steps; only the current agent reads it */

  /* Returns zeroed memory for the runtime's own structures, or NULL if memory is exhausted. The
   * memory is aligned to pages. Only the code beside the variant can access it: if the variant runs
   * on a device, the host cannot. A page costs physical memory
   * only after its first use. The runtime's destroy() must release the memory that its create()
   * reserved. */
  void* (*reserve)(void* self, size_t bytes);
  void (*release)(void* self, void* memory, size_t bytes);
  /* Returns the bytes of reserve()d memory, in whole pages, that were ever read or written. */
  size_t (*touched)(void* self, const void* memory, size_t bytes);

  /* Device (global) memory. Addresses are aligned to 1024 bytes. The backend frees buffers that are
   * still allocated at the end of the run; they do not count as leaks. allocate(0) returns a
   * unique, empty buffer. */
  pto_status (*allocate)(void* self, size_t bytes, uint64_t* address);
  pto_status (*free)(void* self, uint64_t address);
  /* Allocates device memory for a ring, which outlives runs. A page costs physical memory only
   * after its first use. The checks treat the ring as one live buffer. The runtime frees it with
   * free(), at the latest in destroy(). Returns PTO_ERROR_MEMORY if the device does not have enough
   * memory. In checking mode the ring occupies twice `bytes`, and the data at offset `o` of the
   * ring is at address + 2 * o. So a gap of the same size follows each buffer, and a ring of a
   * given size holds the same buffers in both modes. */
  pto_status (*allocate_ring)(void* self, size_t bytes, uint64_t* address);
  pto_status (*copy_in)(void* self, uint64_t device, const void* host, size_t bytes);
  pto_status (*copy_out)(void* self, void* host, uint64_t device, size_t bytes);

  /* Checking mode: returns PTO_ERROR_ADDRESS, with a message in `error`, if `value` is certainly a
   * wrong pointer: inside device memory but in no live allocation, or inside a host argument. */
  pto_status (*check_value)(void* self, uint64_t value, pto_error* error);
  /* For a value that is certainly an address, in checking mode or because a signature declares it:
   * returns PTO_ERROR_ADDRESS, with a message in `error` that states the available size, if `bytes`
   * at `address` do not all lie in one live buffer. */
  pto_status (*check_range)(void* self, uint64_t address, size_t bytes, pto_error* error);
  /* Checking mode, orchestrator only: marks `bytes` bytes of a ring as one buffer, until the run
   * ends or lend() marks an overlapping buffer. `address` is a multiple of 1024. Buffers are at
   * least 1024 bytes apart, and the bytes around each buffer are guarded. Returns
   * PTO_ERROR_ADDRESS, with a message in `error`, if guarded bytes around the replaced buffer were
   * written. */
  pto_status (*lend)(void* self, uint64_t address, size_t bytes, pto_error* error);

  /* Kernels and libraries. upload_kernel() loads the bytes of a kernel binary and returns its
   * address; resolve() finds a symbol of a library that the backend loaded for this run. */
  pto_status (*upload_kernel)(void* self, int32_t func_id, const void* bytes, size_t length,
                              uint64_t* address);
  pto_status (*resolve)(void* self, uint64_t library, const char* symbol, void** address);

  /* Only scheduler `thread` calls these. The cores of a batch are its own, or other schedulers have
   * left them to it; then poll() reports them to it. dispatch() requires that the cores are free,
   * and always succeeds. When it returns, the caller may reuse the batch and its payloads. */
  void (*dispatch)(void* self, uint32_t thread, const pto_dispatch* batch, uint32_t count);
  void (*poll)(void* self, uint32_t thread, pto_poll_result* result);
  void (*fault)(void* self, uint32_t core, pto_error* error);

  /* wake(): scheduler `thread`, which may have reported idle, has work; cheap if it is awake.
   * wait(): orchestrator only; blocks until `*word` differs from `expected`, or until the run is
   * aborted (PTO_ERROR_ABORTED) or proven stuck (PTO_ERROR_DEADLOCK).
   * notify(): the caller has changed `*word`; wakes the waiting orchestrator. */
  void (*wake)(void* self, uint32_t thread);
  pto_status (*wait)(void* self, const uint32_t* word, uint32_t expected);
  void (*notify)(void* self, const uint32_t* word);

  /* Returns the time in nanoseconds. It may be virtual time, so a runtime uses no other clock. */
  uint64_t (*now)(void* self);

  /* In deterministic mode yield() and trace() block until it is the caller's turn. The caller must
   * hold no lock. */
  void (*yield)(void* self, uint32_t point);
  void (*order)(void* self, uint32_t event, uint64_t a, uint64_t b);
  void (*log)(void* self, int32_t level, const char* message);
} pto_platform;

PTO_ABI_ASSERT(offsetof(pto_platform, topology) == 16, "pto_platform.topology");
PTO_ABI_ASSERT(offsetof(pto_platform, tracks) == 48, "pto_platform.tracks");
PTO_ABI_ASSERT(offsetof(pto_platform, reserve) == 64, "pto_platform.reserve");
PTO_ABI_ASSERT(sizeof(pto_platform) == 248, "pto_platform");

static inline void pto_yield(const pto_platform* platform, uint32_t point) {
  if (platform->deterministic) platform->yield(platform->self, point);
}

/* Returns the clock of trace records. */
static inline uint64_t pto_clock(const pto_platform* platform) {
  switch (platform->clock) {
#if defined(__x86_64__)
    case PTO_CLOCK_TSC:
      return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    case PTO_CLOCK_CNTVCT: {
      uint64_t ticks;
      __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
      return ticks;
    }
#endif
    case PTO_CLOCK_STEPS:
      return *platform->steps;
    default:
      return platform->now(platform->self);
  }
}

/* Writes a record. It is a function of its own, so that a run without a trace pays for the test of
 * the group only: the code that calls it keeps its registers. */
__attribute__((noinline, unused)) static void pto_write_record(const pto_platform* platform,
                                                               uint32_t track, uint32_t event,
                                                               uint64_t a, uint64_t b) {
  const pto_trace_record record = {pto_clock(platform), a, b, 0, (uint16_t)event, (uint16_t)track};
  pto_trace_write(&platform->tracks[track], &record);
}

/* Whether the trace of this run contains any of these groups. */
static inline int pto_is_traced(const pto_platform* platform, uint32_t groups) {
  return __builtin_expect((platform->tracing & groups) != 0, 0);
}

/* Records an event if the trace of this run contains its group. Only the current writer of the
 * track may call it. */
static inline void pto_record(const pto_platform* platform, uint32_t track, uint32_t event,
                              uint64_t a, uint64_t b) {
  if (pto_is_traced(platform, 1u << (event >> 4))) pto_write_record(platform, track, event, a, b);
}

/* Records the begin of a range that the program marks. */
static inline void pto_record_range_begin(const pto_platform* platform, uint32_t track,
                                          const char* name) {
  if (!pto_is_traced(platform, PTO_TRACE_TASKS)) return;
  uint32_t event = PTO_TRACE_RANGE_BEGIN;
  do {
    uint64_t text[2] = {0, 0};
    for (size_t i = 0; i < sizeof text && *name != 0; ++i) {
      text[i / 8] |= (uint64_t)(unsigned char)*name++ << (i % 8 * 8);
    }
    pto_record(platform, track, event, text[0], text[1]);
    event = PTO_TRACE_RANGE_TEXT;
  } while (*name != 0);
}

/* Records the end of the innermost range of the track. */
static inline void pto_record_range_end(const pto_platform* platform, uint32_t track) {
  pto_record(platform, track, PTO_TRACE_RANGE_END, 0, 0);
}

/* Reports an event that defines the order of a deterministic run. */
static inline void pto_order(const pto_platform* platform, uint32_t event, uint64_t a, uint64_t b) {
  if (pto_is_traced(platform, PTO_TRACE_ORDER)) platform->order(platform->self, event, a, b);
}

/* pto_order and pto_record with the same values. */
static inline void pto_trace(const pto_platform* platform, uint32_t track, uint32_t event,
                             uint64_t a, uint64_t b) {
  if (!pto_is_traced(platform, ~0u)) return;
  pto_order(platform, event, a, b);
  pto_record(platform, track, event, a, b);
}

#endif
