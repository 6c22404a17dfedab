// The argument that a kernel receives for a tensor parameter: a pointer to a TensorData. Each task
// has its own copy.
//
//   extern "C" void kernel_entry(int64_t* args) {
//     const TensorData* in = reinterpret_cast<const TensorData*>(args[0]);
//     const float* first = reinterpret_cast<const float*>(in->buffer.addr) + in->start_offset;
//
// A view of `shapes` at `offsets` into a buffer of `raw_shapes`, all in elements. The first element
// of the view is start_offset elements after buffer.addr. The stride of dimension i, in elements,
// is the product of raw_shapes over the dimensions whose `order` is greater than order[i]; without
// a transpose, it is the product over the dimensions after i.
#ifndef PTO2_TENSOR_DATA_H
#define PTO2_TENSOR_DATA_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "data_type.h"

#ifndef RUNTIME_MAX_TENSOR_DIMS
#define RUNTIME_MAX_TENSOR_DIMS 5
#endif

struct TensorBuffer {
  uint64_t addr;  // device address; 0 until the tensor is submitted as an output
  uint64_t size;  // size in bytes
};

struct TensorData {
  TensorBuffer buffer;
  uint64_t raw_shapes[RUNTIME_MAX_TENSOR_DIMS];
  uint64_t shapes[RUNTIME_MAX_TENSOR_DIMS];
  uint64_t offsets[RUNTIME_MAX_TENSOR_DIMS];
  uint64_t start_offset;
  uint32_t ndims;
  DataType dtype;
  int32_t version;  // a number that the orchestration may choose
  // for each dimension, its position in memory; 0 is the slowest
  uint8_t order[RUNTIME_MAX_TENSOR_DIMS];
  uint8_t is_pipe;  // whether the tensor orders tasks and has no memory
  uint8_t dropped;  // bit i: the shape in Python omits dimension i
  uint8_t tag;      // in the copy of a kernel: how the task uses it, a PTOParamType
  uint8_t reserved[4];
  int64_t owner;  // id of the task that allocated the buffer; -1 for none

  TensorData() = default;
  // Construct a view of external memory. A null array stands for ndims zeros.
  TensorData(void* address, uint64_t buffer_bytes, const uint64_t raw[], const uint64_t view[],
             const uint64_t from[], uint64_t dimensions, DataType element, int32_t number);

  // Return the number of elements of the view.
  uint64_t numel() const;
  // Return the distance in elements between neighbours along dimension `i`.
  uint64_t stride(uint32_t i) const;
  // Return whether the elements are contiguous in memory, last dimension fastest.
  bool is_contiguous() const;
  // Return a description for logs: address, sizes, shapes, offsets and data type.
  std::string dump() const;
};

// The layout is the same as that of pto_tensor_data of the native ABI.
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

inline uint64_t TensorData::numel() const {
  uint64_t count = 1;
  for (uint32_t i = 0; i < ndims; ++i) count *= shapes[i];
  return count;
}

inline uint64_t TensorData::stride(uint32_t i) const {
  uint64_t elements = 1;
  for (uint32_t j = 0; j < ndims; ++j) {
    if (order[j] > order[i]) elements *= raw_shapes[j];
  }
  return elements;
}

inline bool TensorData::is_contiguous() const {
  if (numel() == 0) return true;
  uint64_t expected = 1;
  for (uint32_t i = ndims; i-- > 0;) {
    if (shapes[i] != 1 && stride(i) != expected) return false;
    expected *= shapes[i];
  }
  return true;
}

inline TensorData::TensorData(void* address, uint64_t buffer_bytes, const uint64_t raw[],
                              const uint64_t view[], const uint64_t from[], uint64_t dimensions,
                              DataType element, int32_t number) {
  *this = TensorData{};
  buffer = {reinterpret_cast<uintptr_t>(address), buffer_bytes};
  ndims = static_cast<uint32_t>(dimensions < RUNTIME_MAX_TENSOR_DIMS ? dimensions
                                                                     : RUNTIME_MAX_TENSOR_DIMS);
  dtype = element;
  version = number;
  owner = -1;
  for (uint32_t i = 0; i < RUNTIME_MAX_TENSOR_DIMS; ++i) {
    const bool is_used = i < ndims;
    raw_shapes[i] = is_used && raw != nullptr ? raw[i] : 0;
    shapes[i] = is_used && view != nullptr ? view[i] : 0;
    offsets[i] = is_used && from != nullptr ? from[i] : 0;
    order[i] = static_cast<uint8_t>(i);
  }
  for (uint32_t i = 0; i < ndims; ++i) start_offset += offsets[i] * stride(i);
}

inline std::string TensorData::dump() const {
  const auto number = [](const char* format, uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, format, static_cast<unsigned long long>(value));
    return std::string(text);
  };
  const auto list = [&](const uint64_t* values) {
    std::string text = "[";
    for (uint32_t i = 0; i < ndims; ++i) text += (i == 0 ? "" : ", ") + number("%llu", values[i]);
    return text + "]";
  };
  return "TensorData{addr=" + number("0x%llx", buffer.addr) +
         ", size=" + number("%llu", buffer.size) + " bytes, raw_shapes=" + list(raw_shapes) +
         ", shapes=" + list(shapes) + ", offsets=" + list(offsets) +
         ", start_offset=" + number("%llu", start_offset) + ", ndims=" + number("%llu", ndims) +
         ", dtype=" + pto_orchestration::name_of(dtype) + ", version=" + std::to_string(version) +
         "}";
}

#endif
