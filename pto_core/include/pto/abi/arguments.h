/* Arguments of a run and the per-run configuration.
 *
 * pto_tensor is the published 40-byte ContinuousTensor; an argument blob is
 * `int32 tensor_count, int32 scalar_count, pto_tensor[tensor_count], uint64[scalar_count]`.
 */
#ifndef PTO_ABI_ARGUMENTS_H
#define PTO_ABI_ARGUMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

#define PTO_MAX_DIMS 5

/* How a task uses a tensor. The lower bits are the tag + 1, or 0 if the use is unknown. */
enum {
  PTO_USE_TAG = 7,      /* mask of the tag + 1 */
  PTO_USE_ALLOCATED = 8 /* the submit of the task allocated the memory */
};

/* The published layout ends with six bytes `pad`, which are 0. `use` is the first of these bytes.
 * It differs from 0 only in the tasks of a child that requested the uses of tensors. */
typedef struct pto_tensor {
  uint64_t data;
  uint32_t shapes[PTO_MAX_DIMS];
  uint32_t ndims;
  uint8_t dtype;
  uint8_t child_memory;
  uint8_t use; /* PTO_USE_* */
  uint8_t pad[5];
} pto_tensor;

PTO_ABI_ASSERT(sizeof(pto_tensor) == 40, "ContinuousTensor is 40 bytes");
PTO_ABI_ASSERT(offsetof(pto_tensor, shapes) == 8, "pto_tensor.shapes");
PTO_ABI_ASSERT(offsetof(pto_tensor, ndims) == 28, "pto_tensor.ndims");
PTO_ABI_ASSERT(offsetof(pto_tensor, dtype) == 32, "pto_tensor.dtype");
PTO_ABI_ASSERT(offsetof(pto_tensor, child_memory) == 33, "pto_tensor.child_memory");
PTO_ABI_ASSERT(offsetof(pto_tensor, use) == 34, "pto_tensor.use");

/* The published CallConfig. `block_dim` 0 means the platform's maximum. */
typedef struct pto_call_config {
  int32_t block_dim;
  int32_t aicpu_thread_num;
  int32_t enable_l2_swimlane;
  int32_t enable_dump_tensor;
  int32_t enable_pmu;
  int32_t enable_dep_gen;
  int32_t enable_scope_stats;
  char output_prefix[1024];
} pto_call_config;

PTO_ABI_ASSERT(sizeof(pto_call_config) == 1052, "the size is part of slots and frames");
PTO_ABI_ASSERT(offsetof(pto_call_config, output_prefix) == 28, "pto_call_config.output_prefix");

/* A named setting of a plugin. The strings are valid until the call returns. */
typedef struct pto_option {
  const char* key;
  const char* value;
} pto_option;

PTO_ABI_ASSERT(sizeof(pto_option) == 16, "pto_option");

/* The host memory of one tensor argument. Checking mode uses it to recognise a host address. */
typedef struct pto_host_range {
  uint64_t address;
  uint64_t bytes;
} pto_host_range;

PTO_ABI_ASSERT(sizeof(pto_host_range) == 16, "pto_host_range");

#endif
