// What a kernel gets for a tensor parameter: a pointer to a TensorData, its own copy.
//
//   extern "C" void kernel_entry(int64_t* args) {
//     const TensorData* in = reinterpret_cast<const TensorData*>(args[0]);
//     const float* first = reinterpret_cast<const float*>(in->buffer.addr) + in->start_offset;
//
// A view of `shapes` at `offsets` into a buffer of `raw_shapes`, all in elements. The view's first
// element is start_offset elements after buffer.addr. One step along dimension i is as many
// elements as the product of raw_shapes over the dimensions whose `order` is greater than order[i];
// without a transpose that is the product over the dimensions after i.
#ifndef PTO2_TENSOR_DATA_H
#define PTO2_TENSOR_DATA_H

#include <cstddef>
#include <cstdint>

#include "data_type.h"

#ifndef RUNTIME_MAX_TENSOR_DIMS
#define RUNTIME_MAX_TENSOR_DIMS 5
#endif

struct TensorBuffer {
  uint64_t addr;  // device address; 0 until the tensor is submitted as an output
  uint64_t size;  // bytes
};

struct TensorData {
  TensorBuffer buffer;
  uint64_t raw_shapes[RUNTIME_MAX_TENSOR_DIMS];
  uint64_t shapes[RUNTIME_MAX_TENSOR_DIMS];
  uint64_t offsets[RUNTIME_MAX_TENSOR_DIMS];
  uint64_t start_offset;
  uint32_t ndims;
  DataType dtype;
  int32_t version;                         // the orchestration's own number
  uint8_t order[RUNTIME_MAX_TENSOR_DIMS];  // memory dimension (0 slowest) of each dimension
  uint8_t is_pipe;                         // orders tasks, has no memory
  uint8_t dropped;                         // of Python's, 0 in C++
  uint8_t tag;  // in a kernel's copy: what the task does with it, a PTOParamType
  uint8_t reserved[4];
  int64_t owner;  // the task that allocated the buffer, -1 for none
};

// The same bytes as pto_tensor_data of the native ABI.
static_assert(RUNTIME_MAX_TENSOR_DIMS == 5, "the layout of TensorData is published");
static_assert(offsetof(TensorData, raw_shapes) == 16, "TensorData.raw_shapes");
static_assert(offsetof(TensorData, shapes) == 56, "TensorData.shapes");
static_assert(offsetof(TensorData, offsets) == 96, "TensorData.offsets");
static_assert(offsetof(TensorData, start_offset) == 136, "TensorData.start_offset");
static_assert(offsetof(TensorData, ndims) == 144, "TensorData.ndims");
static_assert(offsetof(TensorData, dtype) == 148, "TensorData.dtype");
static_assert(offsetof(TensorData, version) == 152, "TensorData.version");
static_assert(offsetof(TensorData, order) == 156, "TensorData.order");
static_assert(offsetof(TensorData, is_pipe) == 161, "TensorData.is_pipe");
static_assert(offsetof(TensorData, tag) == 163, "TensorData.tag");
static_assert(offsetof(TensorData, owner) == 168, "TensorData.owner");
static_assert(sizeof(TensorData) == 176, "TensorData");

#endif
