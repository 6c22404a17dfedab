/* The payload that a runtime passes to a core, and the register protocol of a dispatch.
 *
 * On silicon, global memory is not coherent for a core. So the payload contains all data that a
 * core needs, and dispatch() copies the payload to the core. The runtime may reuse its own copy
 * when dispatch() returns. Arguments whose bit in `relative_args` is set are byte offsets from the
 * start of the payload; the core converts them to addresses in its own copy before it calls the
 * kernel.
 *
 * Registers of a core: the backend writes a sequence number (1 to PTO_SEQUENCE_MAX, then 1 again)
 * to DATA_MAIN_BASE; the core answers in COND with the same number and bit 31 clear (acknowledged),
 * then, when the kernel has returned, with bit 31 set (finished). PTO_SEQUENCE_EXIT stops the core.
 */
#ifndef PTO_ABI_PAYLOAD_H
#define PTO_ABI_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

#define PTO_MAX_KERNEL_ARGS 64
#define PTO_MAX_PAYLOAD 16384

#define PTO_SEQUENCE_EXIT 0x7FFFFFF0u
#define PTO_SEQUENCE_MAX 0x7FFFFFEFu
#define PTO_COND_FINISHED 0x80000000u

typedef struct pto_payload {
  uint64_t kernel; /* address returned by load_kernel; opaque outside the backend */
  uint64_t task;   /* the runtime's id: unique among live tasks */
  uint64_t cookie; /* a value of the submitter, copied unchanged */
  int32_t func_id;
  uint32_t num_args;
  uint64_t relative_args; /* bit i: args[i] is an offset into this payload */
  /* uint64_t args[num_args] follow, then the data to which the offsets refer */
} pto_payload;

PTO_ABI_ASSERT(sizeof(pto_payload) == 40, "the arguments start at byte 40");
PTO_ABI_ASSERT(offsetof(pto_payload, func_id) == 24, "pto_payload.func_id");
PTO_ABI_ASSERT(offsetof(pto_payload, relative_args) == 32, "pto_payload.relative_args");

static inline uint64_t* pto_payload_args(pto_payload* payload) {
  return (uint64_t*)(payload + 1);
}

/* Flags of a dispatch. TOGETHER: the kernel may wait for the other kernels of the same batch that
 * have this flag. A backend starts all of them, also if the run ends meanwhile, and each progresses
 * whatever the others do. */
enum { PTO_DISPATCH_TOGETHER = 1 };

typedef struct pto_dispatch {
  uint32_t core;
  uint16_t length; /* bytes of the payload: header, arguments and data */
  uint16_t flags;  /* PTO_DISPATCH_* */
  const pto_payload* payload;
} pto_dispatch;

PTO_ABI_ASSERT(sizeof(pto_dispatch) == 16, "pto_dispatch");

#endif
