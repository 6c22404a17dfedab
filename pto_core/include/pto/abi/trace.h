/* The trace of a run: records, and the rings through which they reach the reader.
 *
 * A track is one agent of a run: the orchestrator, a scheduler thread, a thread that runs kernels,
 * or the thread that called run. Each track has a ring with one writer and one reader. The writer
 * never waits: if the ring is full, it drops the new record and counts it, or, in a ring that
 * overwrites, replaces the oldest record. The reader drains the rings during the run.
 * `attempts` numbers the records of a track, dropped ones included, so a gap in the numbers shows
 * where records were dropped, and attempts - written is the number of dropped records.
 */
#ifndef PTO_ABI_TRACE_H
#define PTO_ABI_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

/* The groups of events, as bits. Level n of CallConfig.enable_l2_swimlane selects the first n. */
enum {
  PTO_TRACE_TASKS = 1u << 0,  /* the life of each task */
  PTO_TRACE_PHASES = 1u << 1, /* the work of schedulers and orchestrator */
  PTO_TRACE_WAITS = 1u << 2,  /* waits of orchestrator and workers */
  PTO_TRACE_EDGES = 1u << 3   /* every dependency */
};
#define PTO_TRACE_LEVELS 4

/* Not part of a level: the backend observes the order of events, in deterministic mode. */
#define PTO_TRACE_ORDER 0x80000000u

/* The events. The group of an event is bit (event >> 4). An event with a duration is recorded at
 * its end; `a` is then the clock at its start. */
enum {
  PTO_TRACE_SUBMIT = 0x01,        /* a = task, b = func_id */
  PTO_TRACE_READY = 0x02,         /* a = task, b = 1 + the task that released it, 0: none */
  PTO_TRACE_DISPATCH = 0x03,      /* a = task, b = core */
  PTO_TRACE_START = 0x04,         /* a = task, b = core + (func_id << 32) */
  PTO_TRACE_END = 0x05,           /* a = task, b = core + (processor time in ns, or 0, << 16) */
  PTO_TRACE_COMPLETE = 0x06,      /* a = task, b = core */
  PTO_TRACE_BUILD = 0x08,         /* duration: the orchestration; b = 0 */
  PTO_TRACE_COPY_IN = 0x09,       /* duration: a copy to the device; b = bytes */
  PTO_TRACE_COPY_OUT = 0x0A,      /* duration: a copy to the host; b = bytes */
  PTO_TRACE_RANGE_BEGIN = 0x0B,   /* a, b = the first 16 bytes of the name, padded with zeros */
  PTO_TRACE_RANGE_TEXT = 0x0C,    /* a, b = the next 16 bytes of the name of that range */
  PTO_TRACE_RANGE_END = 0x0D,     /* ends the innermost range of the track; a, b = 0 */
  PTO_TRACE_COUNTER = 0x0F,       /* of a task that ended; a = task, b = value + (counter << 56) */
  PTO_TRACE_COLLECT = 0x10,       /* duration: a scheduler completes tasks; b = tasks */
  PTO_TRACE_WIRE = 0x11,          /* duration: a scheduler connects submitted tasks; b = tasks */
  PTO_TRACE_FILL = 0x12,          /* duration: a scheduler dispatches tasks; b = tasks */
  PTO_TRACE_RETIRE = 0x13,        /* duration: a scheduler releases finished tasks; b = tasks */
  PTO_TRACE_SCOPE_BEGIN = 0x14,   /* a = depth, b = ring */
  PTO_TRACE_SCOPE_END = 0x15,     /* a = depth, b = ring */
  PTO_TRACE_RING = 0x16,          /* a = tasks in use + (ring << 56), b = heap bytes in use */
  PTO_TRACE_BACK_PRESSURE = 0x20, /* duration: a call waits; b = PTO_RESOURCE_* + (ring << 8) */
  PTO_TRACE_PARK = 0x21,          /* duration: a worker without work sleeps; b = 0 */
  PTO_TRACE_EDGE = 0x30,          /* a = from, b = to */
  PTO_TRACE_RELEASE = 0x31        /* a = completed task, b = task that waits for it */
};

/* The counters of PTO_TRACE_COUNTER, which CallConfig.enable_pmu switches on. They count a kernel
 * on its thread. */
enum {
  PTO_COUNTER_TASK_CLOCK = 0, /* nanoseconds on a processor */
  PTO_COUNTER_PAGE_FAULTS = 1,
  PTO_COUNTER_CONTEXT_SWITCHES = 2,
  PTO_COUNTER_CYCLES = 3,
  PTO_COUNTER_INSTRUCTIONS = 4,
  PTO_COUNTER_CACHE_MISSES = 5,
  PTO_COUNTER_BRANCH_MISSES = 6,
  PTO_COUNTERS = 7
};

/* The tracks of a run. */
enum {
  PTO_TRACK_ORCHESTRATOR = 0,
  PTO_TRACK_SCHEDULER = 1, /* plus the number of the scheduler thread */
  PTO_TRACK_WORKER = 5,    /* plus the number of the thread that runs kernels */
  PTO_TRACK_HOST = 67,     /* the thread that called run */
  PTO_TRACKS = 68
};

/* The sources of the clock. */
enum {
  PTO_CLOCK_NOW = 0,    /* pto_platform.now, in nanoseconds */
  PTO_CLOCK_TSC = 1,    /* the invariant time stamp counter of x86-64 */
  PTO_CLOCK_CNTVCT = 2, /* the virtual counter of AArch64 */
  PTO_CLOCK_STEPS = 3   /* the number of steps, in deterministic mode */
};

typedef struct pto_trace_record {
  uint64_t clock;
  uint64_t a;
  uint64_t b;
  uint32_t number; /* of the record on its track, from 0; dropped records are counted */
  uint16_t event;  /* PTO_TRACE_* */
  uint16_t track;  /* PTO_TRACK_* */
} pto_trace_record;

PTO_ABI_ASSERT(sizeof(pto_trace_record) == 32, "pto_trace_record");
PTO_ABI_ASSERT(offsetof(pto_trace_record, number) == 24, "pto_trace_record.number");
PTO_ABI_ASSERT(offsetof(pto_trace_record, track) == 30, "pto_trace_record.track");

typedef struct pto_trace_ring {
  /* Accessed by the writer; the reader reads `written` and `attempts`. */
  uint64_t written;  /* number of records in the ring, from the start of the run */
  uint64_t attempts; /* number of records that the writer wanted to write */
  uint64_t known_read;
  pto_trace_record* records;
  uint64_t mask;       /* number of entries, a power of two, minus one */
  uint64_t overwrites; /* non-zero: a full ring replaces its oldest record */
  uint64_t pad[2];
  uint64_t read; /* number of records that the reader has taken; only the reader writes it */
  uint64_t reader_pad[7];
} pto_trace_ring;

PTO_ABI_ASSERT(sizeof(pto_trace_ring) == 128, "one cache line for each side");
PTO_ABI_ASSERT(offsetof(pto_trace_ring, read) == 64, "pto_trace_ring.read");

/* A reading of the clock of the trace together with CLOCK_MONOTONIC of the host. */
typedef struct pto_clock_pair {
  uint64_t ticks;
  uint64_t ns;
} pto_clock_pair;

PTO_ABI_ASSERT(sizeof(pto_clock_pair) == 16, "pto_clock_pair");

/* The trace of one run. The caller owns it and the rings until finish() of the run, or, if the
 * device is lost, for ever. */
typedef struct pto_run_trace {
  uint32_t groups;       /* PTO_TRACE_TASKS to PTO_TRACE_EDGES */
  uint32_t clock;        /* PTO_CLOCK_*; set by start() */
  pto_trace_ring* rings; /* PTO_TRACKS rings */
  /* Set by start(): the first and the last known pair. finish() replaces the last one. */
  pto_clock_pair first;
  pto_clock_pair last;
  uint64_t workers; /* number of threads that can run kernels; set by start() */
} pto_run_trace;

PTO_ABI_ASSERT(sizeof(pto_run_trace) == 56, "pto_run_trace");

/* Writer: appends a record. If the ring is full, it drops the record or replaces the oldest one. */
static inline void pto_trace_write(pto_trace_ring* ring, const pto_trace_record* record) {
  const uint64_t at = __atomic_load_n(&ring->written, __ATOMIC_RELAXED);
  const uint64_t attempts = __atomic_load_n(&ring->attempts, __ATOMIC_RELAXED);
  __atomic_store_n(&ring->attempts, attempts + 1, __ATOMIC_RELAXED);
  if (at - ring->known_read > ring->mask) {
    ring->known_read = __atomic_load_n(&ring->read, __ATOMIC_ACQUIRE);
    if (at - ring->known_read > ring->mask && ring->overwrites == 0) return;
  }
  pto_trace_record* entry = &ring->records[at & ring->mask];
  *entry = *record;
  entry->number = (uint32_t)attempts;
  __atomic_store_n(&ring->written, at + 1, __ATOMIC_RELEASE);
}

#endif
