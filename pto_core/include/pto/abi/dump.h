/* The file to which a backend writes the arguments of kernel calls during a run.
 *
 * The caller of start() makes the file: a pto_dump_header, the names of the kernels to record, each
 * with a zero at its end, and bytes that only the caller reads, up to `first`. The name `#17`
 * stands for the calls with the task id 17. The run names the file in
 * pto_call_config.output_prefix, and sets enable_dump_tensor to PTO_DUMP_*. The backend appends a
 * record before and after each selected call; a record is followed by its tensors, the name and the
 * library of the kernel, the payload, and the elements of the tensors.
 */
#ifndef PTO_ABI_DUMP_H
#define PTO_ABI_DUMP_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/arguments.h"
#include "pto/abi/version.h"

/* The levels. FAILED: the calls that failed or did not return; OUTPUTS: the arguments after each
 * call; ALL: the arguments before and after it; HASHES: a hash of each argument after the call that
 * is not an input, without library and payload. If the arguments are addresses, HASHES also writes
 * the record before the call, because other tasks may change the same buffer. */
enum {
  PTO_DUMP_OFF = 0,
  PTO_DUMP_FAILED = 1,
  PTO_DUMP_OUTPUTS = 2,
  PTO_DUMP_ALL = 3,
  PTO_DUMP_HASHES = 4
};

#define PTO_DUMP_MAGIC 0x31504D55444F5450ull /* "PTODUMP1" */

typedef struct pto_dump_header {
  uint64_t magic;
  uint64_t first; /* where the first record begins */
  uint64_t limit; /* most bytes of all records; a backend with less memory lowers it */
  uint64_t lost;  /* records that were not written; the backend counts them */
  uint32_t error; /* errno of a write or read that failed, or 0; if no record counts as lost, an
                   * unknown number is missing */
  uint32_t names; /* bytes of the names; 0: every kernel is recorded */
} pto_dump_header;

PTO_ABI_ASSERT(sizeof(pto_dump_header) == 40, "pto_dump_header");

/* The phases of a record. DROPPED: its content has no meaning. */
enum { PTO_DUMP_DROPPED = 0, PTO_DUMP_BEFORE = 1, PTO_DUMP_AFTER = 2, PTO_DUMP_AFTER_FAILURE = 3 };

typedef struct pto_dump_record {
  uint64_t magic;
  uint64_t bytes; /* from this record to the next one */
  uint64_t task;
  uint64_t address; /* of the payload */
  int32_t func_id;
  uint32_t core;
  uint32_t phase;       /* PTO_DUMP_* */
  uint32_t is_together; /* 1: the call may wait for other kernels */
  uint32_t tensors;
  uint32_t name;    /* bytes of the name of the kernel */
  uint32_t library; /* bytes of the path of its library; 0 for a callback */
  uint32_t payload; /* bytes */
} pto_dump_record;

PTO_ABI_ASSERT(sizeof(pto_dump_record) == 64, "pto_dump_record");

/* The elements of one argument, in the order of its dimensions and without the bytes between them.
 * If the arguments are addresses, this is the whole buffer into which one points, as bytes. */
typedef struct pto_dump_tensor {
  uint64_t address; /* of the first element */
  uint64_t buffer;  /* address of the buffer */
  uint64_t buffer_bytes;
  uint64_t shapes[PTO_MAX_DIMS];
  uint64_t strides[PTO_MAX_DIMS]; /* bytes */
  uint64_t at;    /* of its elements, from the start of the record; HASHES: their hash */
  uint64_t bytes; /* of its elements */
  uint32_t argument;
  uint8_t dtype; /* PTO_DTYPE_* */
  uint8_t ndims;
  uint8_t tag; /* PTO_TAG_*; PTO_ANY: unknown */
  uint8_t reserved;
} pto_dump_tensor;

PTO_ABI_ASSERT(sizeof(pto_dump_tensor) == 128, "pto_dump_tensor");

#endif
