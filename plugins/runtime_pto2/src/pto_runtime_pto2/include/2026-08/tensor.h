// Tensors, as orchestrations describe them and kernels receive them.
//
//   extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
//     __gm__ ChipTensor* in = reinterpret_cast<__gm__ ChipTensor*>(args[0]);
//     __gm__ float* first = reinterpret_cast<__gm__ float*>(in->buffer.addr) + in->start_offset;
//
// A ChipTensor is a view of a buffer. Element (i, j, ...) is at
// start_offset + i * strides[0] + j * strides[1] + ..., in elements from buffer.addr.
#ifndef PTO_TENSOR_H
#define PTO_TENSOR_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

#include "data_type.h"
#include "task_id.h"

#ifndef MAX_TENSOR_DIMS
#define MAX_TENSOR_DIMS 5
#endif
#ifndef RUNTIME_MAX_TENSOR_DIMS
#define RUNTIME_MAX_TENSOR_DIMS MAX_TENSOR_DIMS
#endif

enum class AddressSpace : uint8_t { HOST = 0, DEVICE = 1 };

namespace pto_orchestration {

// The position of a call in the user's source.
struct Location {
  const char* file;
  int32_t line;
};

// Receives the errors of calls in an orchestration; set while one runs.
inline void (*report_error)(const char* what, Location at) = nullptr;

template <class... Values>
__attribute__((cold, noinline)) void report(Location at, const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  if (report_error != nullptr) return report_error(text, at);
  std::fprintf(stderr, "%s:%d: %s\n", at.file, at.line, text);
  std::abort();
}

}  // namespace pto_orchestration

struct TensorBuffer {
  uint64_t addr;  // device address
  uint64_t size;  // bytes
};

struct alignas(64) ChipTensor {
  TensorBuffer buffer;
  PTO2TaskId owner_task_id;  // the task whose submit allocated the buffer
  uint64_t start_offset;     // of the first element, in elements
  int32_t version;           // a number that the orchestration may choose
  uint32_t ndims;            // 1 to 5
  DataType dtype;
  bool manual_dep;     // no edges to other users of the memory, except to its owner
  bool is_contiguous;  // the elements have no gaps, last dimension fastest
  AddressSpace address_space;
  uint32_t shapes[MAX_TENSOR_DIMS];
  uint64_t extent_elem_cache;         // elements from the first one to the end of the last one
  uint32_t strides[MAX_TENSOR_DIMS];  // in elements, > 0
  uint32_t origin;                    // used while a graph is recorded; see pto_graph.h

  // Return the part of `shape` elements that begins at `offsets`. If a shape is 0, the view is
  // empty and the offsets are not checked.
  ChipTensor view(const uint32_t shape[], const uint32_t offsets[], bool manual = false,
                  const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const;
  // Return the same elements in another shape. The tensor must be contiguous.
  ChipTensor reshape(const uint32_t shape[], uint32_t dimensions, bool manual = false,
                     const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const;
  // Exchange two dimensions.
  ChipTensor transpose(uint32_t x, uint32_t y, bool manual = false,
                       const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const;
  // Reorder the dimensions: dimension i of the result is dimension order[i] of this tensor.
  ChipTensor permute(const uint32_t order[], bool manual = false,
                     const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const;
  // Return every `step`-th element of [start, end) along one dimension.
  ChipTensor slice(uint32_t dim, uint32_t start, uint32_t end, uint32_t step = 1,
                   bool manual = false, const char* file = __builtin_FILE(),
                   int32_t line = __builtin_LINE()) const;

  uint64_t numel() const;
  uint64_t nbytes() const { return numel() * get_element_size(dtype); }
  // Return the address of the first element.
  template <class Element>
  Element* data_as() const {
    return reinterpret_cast<Element*>(
        static_cast<uintptr_t>(buffer.addr + start_offset * get_element_size(dtype)));
  }
  // Return the position of an element from buffer.addr, in elements.
  uint64_t compute_flat_offset(const uint32_t indices[], uint32_t count) const;
  // Return a description for logs.
  std::string dump() const;

  // Compute is_contiguous and extent_elem_cache.
  void update_caches();
};

// Kernels and libraries share this layout.
static_assert(std::is_trivially_copyable_v<ChipTensor>, "ChipTensor is copied as bytes");
static_assert(sizeof(ChipTensor) == 128 && alignof(ChipTensor) == 64, "ChipTensor");
static_assert(offsetof(ChipTensor, owner_task_id) == 16, "ChipTensor.owner_task_id");
static_assert(offsetof(ChipTensor, start_offset) == 24, "ChipTensor.start_offset");
static_assert(offsetof(ChipTensor, version) == 32, "ChipTensor.version");
static_assert(offsetof(ChipTensor, dtype) == 40, "ChipTensor.dtype");
static_assert(offsetof(ChipTensor, shapes) == 44, "ChipTensor.shapes");
static_assert(offsetof(ChipTensor, extent_elem_cache) == 64, "ChipTensor.extent_elem_cache");
static_assert(offsetof(ChipTensor, strides) == 72, "ChipTensor.strides");

using Tensor = ChipTensor;  // the name of June 2026

inline uint64_t ChipTensor::numel() const {
  uint64_t count = 1;
  for (uint32_t i = 0; i < ndims; ++i) count *= shapes[i];
  return count;
}

inline void ChipTensor::update_caches() {
  uint64_t last = 0;
  uint64_t expected = 1;
  bool is_empty = false;
  is_contiguous = true;
  for (uint32_t i = ndims; i-- > 0;) {
    is_empty |= shapes[i] == 0;
    if (shapes[i] == 0) continue;
    if (shapes[i] != 1 && strides[i] != expected) is_contiguous = false;
    expected *= shapes[i];
    last += uint64_t{shapes[i] - 1} * strides[i];
  }
  is_contiguous |= is_empty;
  extent_elem_cache = is_empty ? 0 : last + 1;
}

inline ChipTensor ChipTensor::view(const uint32_t shape[], const uint32_t offsets[], bool manual,
                                   const char* file, int32_t line) const {
  ChipTensor part = *this;
  part.manual_dep = manual;
  bool is_empty = false;
  for (uint32_t i = 0; i < ndims; ++i) is_empty |= shape[i] == 0;
  for (uint32_t i = 0; i < ndims; ++i) {
    part.shapes[i] = shape[i];
    if (is_empty) continue;
    if (offsets[i] > shapes[i] || shape[i] > shapes[i] - offsets[i]) {
      pto_orchestration::report(
          {file, line},
          "a view exceeds its tensor: dimension %u of the view is [%u, %llu) and the "
          "tensor has %u; make the view smaller",
          i, offsets[i], static_cast<unsigned long long>(offsets[i]) + shape[i], shapes[i]);
      return *this;
    }
    part.start_offset += uint64_t{offsets[i]} * strides[i];
  }
  part.update_caches();
  return part;
}

inline ChipTensor ChipTensor::reshape(const uint32_t shape[], uint32_t dimensions, bool manual,
                                      const char* file, int32_t line) const {
  uint64_t elements = 1;
  for (uint32_t i = 0; i < dimensions; ++i) elements *= shape[i];
  if (dimensions == 0 || dimensions > MAX_TENSOR_DIMS || elements != numel() || !is_contiguous) {
    pto_orchestration::report(
        {file, line},
        !is_contiguous ? "reshape of a tensor that is not contiguous, from %llu elements to %llu "
                         "in %u dimensions; reshape the whole tensor first and take a view of it"
                       : "reshape of %llu elements to %llu in %u dimensions; use 1 to 5 dimensions "
                         "with the same number of elements",
        static_cast<unsigned long long>(numel()), static_cast<unsigned long long>(elements),
        dimensions);
    return *this;
  }
  ChipTensor result = *this;
  result.manual_dep = manual;
  result.ndims = dimensions;
  uint32_t stride = 1;
  for (uint32_t i = dimensions; i-- > 0;) {
    result.shapes[i] = shape[i];
    result.strides[i] = stride;
    stride *= shape[i] != 0 ? shape[i] : 1;
  }
  result.update_caches();
  return result;
}

inline ChipTensor ChipTensor::transpose(uint32_t x, uint32_t y, bool manual, const char* file,
                                        int32_t line) const {
  if (x >= ndims || y >= ndims) {
    pto_orchestration::report({file, line},
                              "transpose of dimensions %u and %u of a tensor with %u; name two of "
                              "them, from 0",
                              x, y, ndims);
    return *this;
  }
  uint32_t order[MAX_TENSOR_DIMS];
  for (uint32_t i = 0; i < ndims; ++i) order[i] = i == x ? y : i == y ? x : i;
  return permute(order, manual, file, line);
}

inline ChipTensor ChipTensor::permute(const uint32_t order[], bool manual, const char* file,
                                      int32_t line) const {
  ChipTensor result = *this;
  result.manual_dep = manual;
  uint32_t seen = 0;
  for (uint32_t i = 0; i < ndims; ++i) {
    const uint32_t from = order[i] < ndims ? order[i] : 0;
    seen |= order[i] < ndims ? 1u << from : 0;
    result.shapes[i] = shapes[from];
    result.strides[i] = strides[from];
  }
  if (seen != (1u << ndims) - 1) {
    pto_orchestration::report({file, line},
                              "permute with an order that is not a permutation of %u dimensions; "
                              "name each of them once",
                              ndims);
    return *this;
  }
  result.update_caches();
  return result;
}

inline ChipTensor ChipTensor::slice(uint32_t dim, uint32_t start, uint32_t end, uint32_t step,
                                    bool manual, const char* file, int32_t line) const {
  if (dim >= ndims || start > end || end > shapes[dim] || step == 0) {
    pto_orchestration::report({file, line},
                              "slice(%u, %u, %u, %u) of a tensor with %u dimensions, %u elements "
                              "in this one; the range must lie in it, and the step be positive",
                              dim, start, end, step, ndims, dim < ndims ? shapes[dim] : 0);
    return *this;
  }
  ChipTensor result = *this;
  result.manual_dep = manual;
  result.start_offset += uint64_t{start} * strides[dim];
  result.shapes[dim] = (end - start + step - 1) / step;
  result.strides[dim] *= step;
  result.update_caches();
  return result;
}

inline uint64_t ChipTensor::compute_flat_offset(const uint32_t indices[], uint32_t count) const {
  uint64_t offset = start_offset;
  for (uint32_t i = 0; i < count && i < ndims; ++i) offset += uint64_t{indices[i]} * strides[i];
  return offset;
}

inline std::string ChipTensor::dump() const {
  const auto list = [&](const uint32_t* values) {
    std::string text = "[";
    for (uint32_t i = 0; i < ndims; ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
    return text + "]";
  };
  char address[24];
  std::snprintf(address, sizeof address, "0x%llx", static_cast<unsigned long long>(buffer.addr));
  return std::string("ChipTensor{addr=") + address + ", size=" + std::to_string(buffer.size) +
         " bytes, shapes=" + list(shapes) + ", strides=" + list(strides) +
         ", start_offset=" + std::to_string(start_offset) +
         ", dtype=" + std::to_string(static_cast<uint32_t>(dtype)) +
         ", version=" + std::to_string(version) + (manual_dep ? ", manual_dep" : "") + "}";
}

namespace pto_orchestration {

// Return a tensor of a buffer that has no address yet.
inline ChipTensor plain_tensor(const uint32_t shapes[], uint32_t ndims, DataType dtype, bool manual,
                               Location at) {
  ChipTensor tensor{};
  if (ndims == 0 || ndims > MAX_TENSOR_DIMS || get_element_size(dtype) == 0) {
    report(at,
           "a tensor with %u dimensions and data type code %u; use 1 to 5 dimensions and a "
           "DataType",
           ndims, static_cast<unsigned>(dtype));
    const uint32_t one = 1;
    return plain_tensor(&one, 1, DataType::UINT8, manual, at);
  }
  tensor.owner_task_id = PTO2TaskId::invalid();
  tensor.ndims = ndims;
  tensor.dtype = dtype;
  tensor.manual_dep = manual;
  tensor.address_space = AddressSpace::DEVICE;
  uint64_t elements = 1;
  for (uint32_t i = ndims; i-- > 0;) {
    tensor.shapes[i] = shapes[i];
    tensor.strides[i] = static_cast<uint32_t>(elements != 0 ? elements : 1);
    elements *= shapes[i];
  }
  tensor.buffer.size = elements * get_element_size(dtype);
  tensor.update_caches();
  return tensor;
}

// Return a tensor for calls that fail.
inline const ChipTensor& no_tensor() {
  static const uint32_t one = 1;
  static const ChipTensor none = plain_tensor(&one, 1, DataType::UINT8, false, {"", 0});
  return none;
}

}  // namespace pto_orchestration

// Return a tensor on existing memory.
inline ChipTensor make_tensor_external(void* address, const uint32_t shapes[], uint32_t ndims,
                                       DataType dtype = DataType::FLOAT32, bool manual_dep = false,
                                       int32_t version = 0, AddressSpace space = AddressSpace::HOST,
                                       const char* file = __builtin_FILE(),
                                       int32_t line = __builtin_LINE()) {
  ChipTensor tensor =
      pto_orchestration::plain_tensor(shapes, ndims, dtype, manual_dep, {file, line});
  tensor.buffer.addr = reinterpret_cast<uintptr_t>(address);
  tensor.version = version;
  tensor.address_space = space;
  return tensor;
}

// Return a tensor on existing memory with a stride for each dimension, in elements.
inline ChipTensor make_tensor_strided(void* address, const uint32_t shapes[],
                                      const uint32_t strides[], uint32_t ndims,
                                      DataType dtype = DataType::FLOAT32, bool manual_dep = false,
                                      int32_t version = 0, AddressSpace space = AddressSpace::HOST,
                                      const char* file = __builtin_FILE(),
                                      int32_t line = __builtin_LINE()) {
  ChipTensor tensor =
      make_tensor_external(address, shapes, ndims, dtype, manual_dep, version, space, file, line);
  for (uint32_t i = 0; i < tensor.ndims && i < ndims; ++i) {
    if (strides[i] == 0) {
      pto_orchestration::report({file, line}, "stride %u of a tensor is 0; use a positive stride",
                                i);
      return tensor;
    }
    tensor.strides[i] = strides[i];
  }
  tensor.update_caches();
  tensor.buffer.size = tensor.extent_elem_cache * get_element_size(dtype);
  return tensor;
}

#endif
