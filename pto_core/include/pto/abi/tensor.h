/* Tensors of a task, as an orchestration submits them and a kernel reads them.
 *
 * pto_tensor_data is the published TensorData: a view (shapes, offsets) into a buffer with the
 * shape raw_shapes. A kernel receives a pointer to its own copy, inside the payload. All shapes and
 * offsets are in elements. The first dimension is the slowest, unless `order` defines another
 * order.
 */
#ifndef PTO_ABI_TENSOR_H
#define PTO_ABI_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/arguments.h"
#include "pto/abi/version.h"

typedef struct pto_buffer {
  uint64_t addr; /* device address; 0 until a submit as OUTPUT allocates it */
  uint64_t size; /* bytes */
} pto_buffer;

PTO_ABI_ASSERT(sizeof(pto_buffer) == 16, "pto_buffer");

typedef struct pto_tensor_data {
  pto_buffer buffer;
  uint64_t raw_shapes[PTO_MAX_DIMS]; /* of the buffer, in the order of `shapes` */
  uint64_t shapes[PTO_MAX_DIMS];     /* of the view; a tensor with a shape of 0 is a key */
  uint64_t offsets[PTO_MAX_DIMS];    /* of the view in the buffer */
  uint64_t start_offset;             /* number of elements from buffer.addr to the view's first */
  uint32_t ndims;                    /* 0 to PTO_MAX_DIMS; 0: a single element */
  uint32_t dtype;                    /* PTO_DTYPE_* */
  int32_t version;                   /* a number set by the user, copied unchanged */
  uint8_t order[PTO_MAX_DIMS];       /* position of each dimension in memory; 0: slowest */
  uint8_t is_pipe;                   /* 1: only orders tasks and has no memory */
  uint8_t dropped;                   /* bit i: the Python shape omits dimension i, of size 1 */
  uint8_t tag;                       /* in a kernel's copy: PTO_TAG_* of the parameter */
  uint8_t reserved[4];
  int64_t owner; /* task whose submit allocated the buffer from a heap ring; -1: none */
} pto_tensor_data;

PTO_ABI_ASSERT(sizeof(pto_tensor_data) == 176, "all libraries and kernels share TensorData");
PTO_ABI_ASSERT(offsetof(pto_tensor_data, raw_shapes) == 16, "pto_tensor_data.raw_shapes");
PTO_ABI_ASSERT(offsetof(pto_tensor_data, start_offset) == 136, "pto_tensor_data.start_offset");
PTO_ABI_ASSERT(offsetof(pto_tensor_data, order) == 156, "pto_tensor_data.order");
PTO_ABI_ASSERT(offsetof(pto_tensor_data, tag) == 163, "pto_tensor_data.tag");
PTO_ABI_ASSERT(offsetof(pto_tensor_data, owner) == 168, "pto_tensor_data.owner");

/* How a task uses a parameter. */
enum {
  PTO_TAG_INPUT = 0,
  PTO_TAG_OUTPUT = 1,
  PTO_TAG_INOUT = 2,
  PTO_TAG_OUTPUT_EXISTING = 3,
  PTO_TAG_NO_DEP = 4,
  PTO_TAG_SCALAR = 5
};

#define PTO_MAX_TASK_TENSORS 32
#define PTO_MAX_TASK_SCALARS 32

/* The interface for which a program is written. It decides which edges a task has, and in which
 * form a kernel reads a tensor: pto_tensor_data in 2026-03, pto_chip_tensor in 2026-08. */
enum { PTO_API_2026_03 = 0, PTO_API_2026_08 = 1 };

/* The published ChipTensor: a view with a stride for each dimension, in elements. */
typedef struct pto_chip_tensor {
  pto_buffer buffer;
  uint64_t owner_task_id; /* ring << 32 | number of the task in its ring; all ones: none */
  uint64_t start_offset;  /* number of elements from buffer.addr to the first one */
  int32_t version;
  uint32_t ndims; /* 1 to PTO_MAX_DIMS */
  uint8_t dtype;  /* a published code, which differs from PTO_DTYPE_* from 9 on */
  uint8_t manual_dep;
  uint8_t is_contiguous;
  uint8_t address_space; /* 0: host, 1: device */
  uint32_t shapes[PTO_MAX_DIMS];
  uint64_t extent_elem_cache; /* number of elements from the first one to the end of the last */
  uint32_t strides[PTO_MAX_DIMS];
  uint8_t reserved[36];
} pto_chip_tensor;

PTO_ABI_ASSERT(sizeof(pto_chip_tensor) == 128, "all libraries and kernels share ChipTensor");
PTO_ABI_ASSERT(offsetof(pto_chip_tensor, owner_task_id) == 16, "pto_chip_tensor.owner_task_id");
PTO_ABI_ASSERT(offsetof(pto_chip_tensor, dtype) == 40, "pto_chip_tensor.dtype");
PTO_ABI_ASSERT(offsetof(pto_chip_tensor, shapes) == 44, "pto_chip_tensor.shapes");
PTO_ABI_ASSERT(offsetof(pto_chip_tensor, extent_elem_cache) == 64, "pto_chip_tensor.extent");
PTO_ABI_ASSERT(offsetof(pto_chip_tensor, strides) == 72, "pto_chip_tensor.strides");

/* A tensor parameter in 2026-08: the memory of the view as a part of a buffer, for edges and
 * reports, and the form that the kernel reads. If the strides are not those of a part of a buffer,
 * `memory` is the range of bytes that contains the view. */
typedef struct pto_chip_param {
  pto_tensor_data memory;
  pto_chip_tensor chip;
} pto_chip_param;

PTO_ABI_ASSERT(sizeof(pto_chip_param) == 304, "pto_chip_param");

/* In 2026-08, the arguments of a kernel are PTO_CONTEXT_ARGS values, tensors before scalars, and
 * then two pointers to these contexts. */
#define PTO_CONTEXT_ARGS 48

typedef struct pto_local_context {
  int32_t block_idx;
  int32_t block_num;
  uint64_t reserved[6];
} pto_local_context;

typedef struct pto_global_context {
  int32_t sub_block_id; /* AIV lane of a task that occupies several cores of a cluster */
  uint32_t reserved;
  uint64_t dma_workspace[7];
} pto_global_context;

PTO_ABI_ASSERT(sizeof(pto_local_context) == 56, "pto_local_context");
PTO_ABI_ASSERT(sizeof(pto_global_context) == 64, "pto_global_context");

/* A submit that allocates the memory of `tensor` sets its buffer.addr, buffer.size and owner. */
typedef struct pto_param {
  uint32_t tag;
  uint32_t is_manual; /* 2026-08: no edges to other users of the memory, except to its owner */
  union {
    pto_tensor_data* tensor; /* 2026-08: the first member of a pto_chip_param */
    uint64_t scalar;
  } value;
} pto_param;

/* An edge that the program states. */
enum { PTO_DEPENDENCY_WAIT = 1, PTO_DEPENDENCY_RETAIN = 2 };
typedef struct pto_dependency {
  int64_t task;
  uint32_t kinds;
  uint32_t reserved;
} pto_dependency;

PTO_ABI_ASSERT(sizeof(pto_dependency) == 16, "pto_dependency");

PTO_ABI_ASSERT(sizeof(pto_param) == 16, "pto_param");

/* The cores of a cluster on which a task of 2026-08 runs at the same time, as bits. */
enum { PTO_LANE_AIC = 1, PTO_LANE_AIV0 = 2, PTO_LANE_AIV1 = 4 };
#define PTO_LANES 3

/* When a task of 2026-08 starts, after its producers have completed. FREE: each block when a core
 * is free. NEVER: it runs no kernel, and completes at once. TOGETHER: all blocks at the same time;
 * no more blocks than cores, or clusters for a task on several cores. */
enum { PTO_START_FREE = 0, PTO_START_NEVER = 1, PTO_START_TOGETHER = 2 };

/* A condition that a scheduler tests when a task is ready. If it is false, the task completes
 * without running. It compares an integer in device memory with `target`. */
enum {
  PTO_PREDICATE_EQ = 1,
  PTO_PREDICATE_NE = 2,
  PTO_PREDICATE_GT = 3,
  PTO_PREDICATE_LT = 4,
  PTO_PREDICATE_GE = 5,
  PTO_PREDICATE_LE = 6
};
typedef struct pto_predicate {
  uint64_t address;
  int64_t owner; /* the task whose output contains the address, or -1 */
  int64_t target;
  uint8_t op;    /* PTO_PREDICATE_*; 0: no condition */
  uint8_t dtype; /* PTO_DTYPE_* of an integer with 1 to 8 bytes */
  uint8_t reserved[6];
} pto_predicate;

PTO_ABI_ASSERT(sizeof(pto_predicate) == 32, "pto_predicate");

/* One task of a submit with tensors, or `block_dim` tasks that differ in their block id. */
typedef struct pto_tensor_task {
  int32_t func_id;
  int32_t core_type; /* PTO_CORE_AIC, PTO_CORE_AIV, or -1: that of the registered kernel */
  uint32_t num_params;
  uint32_t block_dim; /* 0: one task; else scalars block_dim and block_id are appended */
  pto_param* params;
  uint64_t kernel;         /* address to call; 0: look it up by func_id */
  uint64_t cookie;         /* copied to the payload unchanged */
  const int32_t* clusters; /* one id, or block_dim ids for a block task; NULL: any core */
  const char* file;        /* of the call; NULL: unknown; valid until the run ends */
  int32_t line;
  uint8_t api;       /* PTO_API_* */
  uint8_t start;     /* 2026-08: PTO_START_* */
  uint8_t is_manual; /* 2026-08: has only the edges in `dependencies` */
  uint8_t lanes;     /* 2026-08: PTO_LANE_*; 0: a task on one core, which runs func_id */
  const pto_dependency* dependencies; /* 2026-08 */
  const pto_predicate* predicate;     /* 2026-08; NULL: the task always runs */
  uint32_t num_dependencies;
  int32_t lane_func_ids[PTO_LANES]; /* the kernel of each of the lanes */
} pto_tensor_task;

PTO_ABI_ASSERT(sizeof(pto_tensor_task) == 96, "pto_tensor_task");

#endif
