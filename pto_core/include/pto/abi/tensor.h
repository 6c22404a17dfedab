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

/* A submit that allocates the memory of `tensor` sets its buffer.addr, buffer.size and owner. */
typedef struct pto_param {
  uint32_t tag;
  uint32_t reserved;
  union {
    pto_tensor_data* tensor;
    uint64_t scalar;
  } value;
} pto_param;

PTO_ABI_ASSERT(sizeof(pto_param) == 16, "pto_param");

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
  uint32_t reserved;
} pto_tensor_task;

PTO_ABI_ASSERT(sizeof(pto_tensor_task) == 64, "pto_tensor_task");

#endif
