/* The platform table: the services of a backend for the runtime that it drives.
 *
 * The backend fills one pto_platform per attached runtime and keeps it alive until destroy(). The
 * runtime owns no thread and never sleeps; it calls these functions only inside calls that the
 * backend makes into it. Below, "orchestrator" is the thread inside orchestrate() or submit(), and
 * "scheduler t" the thread inside schedule_step(t). Unless stated otherwise, both may call a
 * function, which does not block and returns in bounded time.
 */
#ifndef PTO_ABI_PLATFORM_H
#define PTO_ABI_PLATFORM_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/payload.h"
#include "pto/abi/status.h"
#include "pto/abi/topology.h"
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
  PTO_YIELD_SUBMIT = 1,   /* after a task became visible to the schedulers */
  PTO_YIELD_EDGE = 2,     /* before an edge is added */
  PTO_YIELD_PUBLISH = 3,  /* before a task is published */
  PTO_YIELD_COMPLETE = 4, /* after a task completed, before its successors are released */
  PTO_YIELD_RELEASE = 5,  /* after one successor was released */
  PTO_YIELD_BLOCKED = 6   /* inside a waiting submit */
};

/* Trace events that a runtime reports; the backend adds its own. */
enum {
  PTO_TRACE_SUBMIT = 1,  /* a = task, b = func_id */
  PTO_TRACE_EDGE = 2,    /* a = from, b = to */
  PTO_TRACE_READY = 3,   /* a = task, b = scheduler thread */
  PTO_TRACE_COMPLETE = 4 /* a = task, b = core */
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
  uint32_t tracing;             /* non-zero: pto_trace() calls `trace` */
  uint32_t checking;            /* non-zero: the runtime calls check_*() and lend() */
  uint32_t timing;              /* non-zero: the runtime stamps start and end of each task */

  /* Memory for the runtime's own structures: zeroed, page aligned, sparse until touched, readable
   * by host and schedulers. NULL if exhausted. destroy() must release the memory of create(). */
  void* (*reserve)(void* self, size_t bytes);
  void (*release)(void* self, void* memory, size_t bytes);
  /* Returns the bytes of reserve()d memory, in whole pages, that were ever read or written. */
  size_t (*touched)(void* self, const void* memory, size_t bytes);

  /* Device (global) memory. Addresses are aligned to 1024 bytes. The backend frees buffers that are
   * still allocated at the end of the run; they do not count as leaks. allocate(0) returns a
   * unique, empty buffer. */
  pto_status (*allocate)(void* self, size_t bytes, uint64_t* address);
  pto_status (*free)(void* self, uint64_t address);
  /* Device memory that outlives runs: sparse until touched, one live buffer for the checks,
   * released with free() in destroy() at the latest. PTO_ERROR_MEMORY if the device has not enough
   * memory. In checking mode the ring has twice `bytes`, and the data at offset `o` of the ring
   * lies at address + 2 * o. So each buffer is followed by a gap of its own size, and the sizes of
   * rings have the same meaning in both modes. */
  pto_status (*allocate_ring)(void* self, size_t bytes, uint64_t* address);
  pto_status (*copy_in)(void* self, uint64_t device, const void* host, size_t bytes);
  pto_status (*copy_out)(void* self, void* host, uint64_t device, size_t bytes);

  /* Checking mode: returns PTO_ERROR_ADDRESS, with a message in `error`, if `value` is certainly a
   * wrong pointer: inside device memory but in no live allocation, or inside a host argument. */
  pto_status (*check_value)(void* self, uint64_t value, pto_error* error);
  /* Checking mode, for a value that is certainly an address: returns PTO_ERROR_ADDRESS, with a
   * message in `error` that states the available size, if `bytes` at `address` do not all lie in
   * one live buffer. */
  pto_status (*check_range)(void* self, uint64_t address, size_t bytes, pto_error* error);
  /* Checking mode: makes `bytes` at `address` of a ring, a multiple of 1024, one buffer until
   * another buffer is lent over it or the run ends. Buffers are at least 1024 bytes apart; the
   * bytes around them are guarded. Orchestrator only. Returns PTO_ERROR_ADDRESS, with a message in
   * `error`, if bytes around the replaced buffer were written. */
  pto_status (*lend)(void* self, uint64_t address, size_t bytes, pto_error* error);

  /* Kernels and libraries. upload_kernel() loads the bytes of a kernel binary and returns its
   * address; resolve() finds a symbol of a library that the backend loaded for this run. */
  pto_status (*upload_kernel)(void* self, int32_t func_id, const void* bytes, size_t length,
                              uint64_t* address);
  pto_status (*resolve)(void* self, uint64_t library, const char* symbol, void** address);

  /* Called by scheduler `thread` only, for cores of that thread. dispatch() needs free cores and
   * always succeeds; the caller may reuse the batch and its payloads when it returns. */
  void (*dispatch)(void* self, uint32_t thread, const pto_dispatch* batch, uint32_t count);
  void (*poll)(void* self, uint32_t thread, pto_poll_result* result);
  void (*fault)(void* self, uint32_t core, pto_error* error);

  /* wake(): scheduler `thread` has work although it reported idle; cheap if it is awake.
   * wait(): orchestrator only; blocks until `*word` differs from `expected`, or until the run is
   * aborted (PTO_ERROR_ABORTED) or proven stuck (PTO_ERROR_DEADLOCK).
   * notify(): the word has changed. */
  void (*wake)(void* self, uint32_t thread);
  pto_status (*wait)(void* self, const uint32_t* word, uint32_t expected);
  void (*notify)(void* self, const uint32_t* word);

  /* Clock in nanoseconds. A backend may use virtual time, so use no other clock. */
  uint64_t (*now)(void* self);

  /* In deterministic mode both wait for the caller's turn: hold no lock during the call. */
  void (*yield)(void* self, uint32_t point);
  void (*trace)(void* self, uint32_t event, uint64_t a, uint64_t b);
  void (*log)(void* self, int32_t level, const char* message);
} pto_platform;

PTO_ABI_ASSERT(offsetof(pto_platform, topology) == 16, "pto_platform.topology");
PTO_ABI_ASSERT(offsetof(pto_platform, reserve) == 40, "pto_platform.reserve");
PTO_ABI_ASSERT(sizeof(pto_platform) == 224, "pto_platform");

static inline void pto_yield(const pto_platform* platform, uint32_t point) {
  if (platform->deterministic) platform->yield(platform->self, point);
}

static inline void pto_trace(const pto_platform* platform, uint32_t event, uint64_t a, uint64_t b) {
  if (platform->tracing) platform->trace(platform->self, event, a, b);
}

#endif
