/* Status codes and the error record.
 *
 * Every call in the ABI that can fail returns a pto_status. A pto_error contains the explanation:
 * `message` is a whole sentence for the user (what happened, the values, what to do); the other
 * members contain the same facts for programs. A member that does not apply is -1 (ids, line) or 0.
 */
#ifndef PTO_ABI_STATUS_H
#define PTO_ABI_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

typedef int32_t pto_status;

enum {
  PTO_OK = 0,
  PTO_PENDING = 1,             /* not finished yet; not an error */
  PTO_ERROR_USAGE = 2,         /* the caller broke a documented rule */
  PTO_ERROR_CAPACITY = 3,      /* `value` was requested; the maximum is `limit` */
  PTO_ERROR_CYCLE = 4,         /* the task graph has a cycle; `task` is on it */
  PTO_ERROR_UNPUBLISHED = 5,   /* some tasks were not published */
  PTO_ERROR_DEADLOCK = 6,      /* no task runs and none can start */
  PTO_ERROR_ORCHESTRATION = 7, /* the orchestration returned `value`, which is not 0 */
  PTO_ERROR_KERNEL = 8,        /* a kernel failed: `task`, `core`, `func_id` */
  PTO_ERROR_MEMORY = 9,        /* device or host memory exhausted */
  PTO_ERROR_ADDRESS = 10,      /* an address outside live device memory, or a damaged red zone */
  PTO_ERROR_LOAD = 11,         /* a library, symbol or kernel could not be loaded */
  PTO_ERROR_ABORTED = 12,      /* the run was aborted from outside */
  PTO_ERROR_TIMEOUT = 13,      /* a kernel did not return in time */
  PTO_ERROR_LOST = 14,         /* the device is lost; only close is allowed */
  PTO_ERROR_UNSUPPORTED = 15,  /* this runtime or backend does not offer the call */
  PTO_ERROR_INTERNAL = 16      /* a bug of the implementation */
};

/* The resource whose exhaustion caused a proven deadlock. */
enum {
  PTO_RESOURCE_NONE = 0,
  PTO_RESOURCE_TASK_RING = 1,
  PTO_RESOURCE_HEAP_RING = 2,
  PTO_RESOURCE_DEPENDENCY_POOL = 3,
  PTO_RESOURCE_TENSOR_MAP = 4,
  PTO_RESOURCE_CLUSTERS = 5,
  PTO_RESOURCE_TASKS = 6 /* never exhausted: the completion of tasks */
};

/* For PTO_ERROR_DEADLOCK: `other_task` is a PTO_RESOURCE_*, `core` its ring (-1: none), `value` the
 * size that suffices, `limit` the current size, `func_id` the kernel of the waiting call, `file`
 * and `line` the location of that call. */
typedef struct pto_error {
  pto_status status;
  int32_t func_id;
  int64_t task;
  int64_t other_task;
  int32_t core;
  int32_t line;
  uint64_t value;
  uint64_t limit;
  char file[256];
  char message[952];
  char vendor_function[64]; /* the function of the device's driver that failed; empty: none did */
  int32_t vendor_code;      /* that it returned */
  int32_t code; /* the published code of the error, PTO2_ERROR_*, with a minus; 0: it has none */
} pto_error;

PTO_ABI_ASSERT(sizeof(pto_error) == 1328, "all libraries share pto_error");
PTO_ABI_ASSERT(offsetof(pto_error, task) == 8, "pto_error.task");
PTO_ABI_ASSERT(offsetof(pto_error, core) == 24, "pto_error.core");
PTO_ABI_ASSERT(offsetof(pto_error, value) == 32, "pto_error.value");
PTO_ABI_ASSERT(offsetof(pto_error, file) == 48, "pto_error.file");
PTO_ABI_ASSERT(offsetof(pto_error, message) == 304, "pto_error.message");
PTO_ABI_ASSERT(offsetof(pto_error, vendor_code) == 1320, "pto_error.vendor_code");

#endif
