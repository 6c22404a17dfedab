/* The measured accesses of a run: the bytes of device memory that each kernel read and wrote, and
 * the memory that the runtime allocated and copied for the orchestration.
 *
 * A kernel reports its accesses if it was built with the `measured_flags` of the backend's recipe.
 */
#ifndef PTO_ABI_MEASUREMENT_H
#define PTO_ABI_MEASUREMENT_H

#include <stdint.h>

#include "pto/abi/version.h"

enum {
  PTO_MEASURED_CALL = 0,   /* a call of a kernel that reports its accesses; the range is empty */
  PTO_MEASURED_READ = 1,   /* bytes that the call read before it wrote them */
  PTO_MEASURED_WRITE = 2,  /* bytes that the call wrote */
  PTO_MEASURED_BUFFER = 3, /* a device buffer into which an argument of the call points */
  /* Instead of CALL: the kernel does not report its accesses. READ ranges are the pages that it
   * only read, WRITE ranges the pages that it wrote, one page each. */
  PTO_MEASURED_PAGES = 4,
  /* Calls of the runtime, with core 0. The task is 0, or the address of the copy in host memory. */
  PTO_MEASURED_ALLOCATED = 5,  /* a new buffer */
  PTO_MEASURED_COPIED_IN = 6,  /* bytes that were copied to the device */
  PTO_MEASURED_COPIED_OUT = 7, /* bytes that were copied to the host */
};

typedef struct pto_measured_range {
  int64_t task;
  uint64_t begin;
  uint64_t end;  /* address after the last byte */
  uint32_t kind; /* PTO_MEASURED_* */
  uint32_t core;
} pto_measured_range;

PTO_ABI_ASSERT(sizeof(pto_measured_range) == 32, "pto_measured_range");

/* Receives the ranges of each kernel call after the call has returned. If they contain neither CALL
 * nor PAGES, they are the ranges that the call may touch. The caller of start() owns this object
 * and keeps it until finish(). Several threads may call add() at once.
 */
typedef struct pto_measurement {
  void* context;
  void (*add)(void* context, const pto_measured_range* ranges, uint64_t count);
} pto_measurement;

PTO_ABI_ASSERT(sizeof(pto_measurement) == 16, "pto_measurement");

#endif
