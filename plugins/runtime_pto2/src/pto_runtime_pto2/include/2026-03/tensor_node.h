// Derives tensors from other tensors: bounds, strides, and the address of the shared buffer.
//
// Only the root node always has the current address, size and owner of the buffer. Every other node
// copies them when it is used, if it has no address yet. An address never changes once it is set.
#ifndef PTO2_TENSOR_NODE_H
#define PTO2_TENSOR_NODE_H

#include <cstdarg>
#include <cstdio>

#include "pto/engine/region.hpp"
#include "tensor_pool.h"

namespace pto_orchestration {

constexpr uint64_t kMaxDims = RUNTIME_MAX_TENSOR_DIMS;

__attribute__((cold, noinline, format(printf, 4, 5))) inline void report(TensorPool* pool,
                                                                         const char* file,
                                                                         int32_t line,
                                                                         const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (pool != nullptr) pool->report(text, file, line);
}

using Unsigned = unsigned long long;  // %llu requires this type, which may differ from uint64_t

__attribute__((cold, noinline)) inline TensorNode* report_empty(const char* what, const char* file,
                                                                int32_t line) {
  report(current_pool, file, line,
         "%s of a tensor that is empty: it was declared and never assigned, or made before the "
         "orchestration started; assign the result of make_tensor() or make_tensor_external()",
         what);
  return nullptr;
}

__attribute__((cold, noinline)) inline TensorNode* report_memory(TensorPool* pool, const char* file,
                                                                 int32_t line) {
  report(pool, file, line,
         "no memory for another tensor, with %llu live tensors; keep fewer tensors",
         static_cast<Unsigned>(pool == nullptr ? 0 : pool->live()));
  return nullptr;
}

// Copy the buffer's address from the root node if it was allocated after this node was created.
inline void refresh(TensorNode* node) {
  if (node->data.buffer.addr != 0 || node->root == nullptr) return;
  node->data.buffer = node->root->data.buffer;
  node->data.owner = node->root->data.owner;
}

// Copy the buffer's address to the root node, after a submit has allocated the buffer through this
// node.
inline void share_allocation(TensorNode* node) {
  if (node->root == nullptr || node->root->data.buffer.addr != 0) return;
  node->root->data.buffer = node->data.buffer;
  node->root->data.owner = node->data.owner;
}

inline TensorData& data_of(TensorNode* node, const char* file, int32_t line) {
  if (node == nullptr) {
    report_empty("data", file, line);
    static TensorData nothing;
    nothing = TensorData{};
    return nothing;
  }
  refresh(node);
  return node->data;
}

// Create a node with the same data and buffer as `from`.
inline TensorNode* derive(TensorNode* from, const char* file, int32_t line) {
  TensorPool* pool = TensorPool::of(from);
  TensorNode* node = pool->allocate();
  if (node == nullptr) return report_memory(pool, file, line);
  refresh(from);
  node->data = from->data;
  node->root = from->root != nullptr ? from->root : from;
  node->is_permuted = from->is_permuted;
  ++node->root->references;
  return node;
}

inline TensorNode* copy_of(TensorNode* from, const char* file, int32_t line) {
  return from == nullptr ? report_empty("copy", file, line) : derive(from, file, line);
}

// Return the distance in elements from the start of the view to the element at `offsets`.
inline uint64_t distance(const TensorNode& node, const uint64_t offsets[]) {
  const TensorData& data = node.data;
  uint64_t elements = 0;
  if (node.is_permuted) {
    for (uint32_t i = 0; i < data.ndims; ++i) elements += offsets[i] * data.stride(i);
    return elements;
  }
  uint64_t stride = 1;
  for (uint32_t i = data.ndims; i-- > 0;) {
    elements += offsets[i] * stride;
    stride *= data.raw_shapes[i];
  }
  return elements;
}

inline TensorNode* view_of(TensorNode* from, const uint64_t shapes[], const uint64_t offsets[],
                           const char* file, int32_t line) {
  if (from == nullptr) return report_empty("view", file, line);
  const TensorData& whole = from->data;
  TensorNode* node = derive(from, file, line);
  if (node == nullptr) return nullptr;
  if (whole.ndims > 0 && (shapes == nullptr || offsets == nullptr)) {
    report(TensorPool::of(from), file, line,
           "view of a tensor with ndims %u got a null pointer; pass %u shapes and %u offsets",
           whole.ndims, whole.ndims, whole.ndims);
    return node;
  }
  TensorData& part = node->data;
  for (uint32_t i = 0; i < whole.ndims; ++i) {
    const uint64_t extent = whole.shapes[i];
    if (__builtin_expect(offsets[i] > extent || shapes[i] > extent - offsets[i], 0)) {
      report(TensorPool::of(from), file, line,
             "view is out of bounds in dimension %u: %llu elements from %llu, but the tensor has "
             "%llu; make offset plus shape at most that number",
             i, static_cast<Unsigned>(shapes[i]), static_cast<Unsigned>(offsets[i]),
             static_cast<Unsigned>(extent));
      for (uint32_t j = 0; j < whole.ndims; ++j) part.shapes[j] = shapes[j];
      return node;
    }
    part.shapes[i] = shapes[i];
    part.offsets[i] += offsets[i];
  }
  part.start_offset += distance(*from, offsets);
  return node;
}

inline TensorNode* transpose_of(TensorNode* from, uint64_t x, uint64_t y, const char* file,
                                int32_t line) {
  if (from == nullptr) return report_empty("transpose", file, line);
  TensorNode* node = derive(from, file, line);
  if (node == nullptr) return nullptr;
  TensorData& data = node->data;
  if (x >= data.ndims || y >= data.ndims) {
    report(TensorPool::of(from), file, line,
           "transpose(%llu, %llu) of a tensor with ndims %u; use dimensions from 0 to %d",
           static_cast<Unsigned>(x), static_cast<Unsigned>(y), data.ndims,
           static_cast<int>(data.ndims) - 1);
    return node;
  }
  const TensorData& old = from->data;
  data.raw_shapes[x] = old.raw_shapes[y], data.raw_shapes[y] = old.raw_shapes[x];
  data.shapes[x] = old.shapes[y], data.shapes[y] = old.shapes[x];
  data.offsets[x] = old.offsets[y], data.offsets[y] = old.offsets[x];
  data.order[x] = old.order[y], data.order[y] = old.order[x];
  node->is_permuted = 0;
  for (uint32_t i = 0; i < data.ndims; ++i) node->is_permuted |= data.order[i] != i;
  return node;
}

// Set the shape. Report too many dimensions, or a null pointer, as an error and return false.
inline bool set_shape(TensorData& data, const uint64_t shapes[], uint64_t ndims, TensorPool* pool,
                      const char* what, const char* file, int32_t line) {
  const bool is_wrong = ndims > kMaxDims || (ndims > 0 && shapes == nullptr);
  if (__builtin_expect(is_wrong, 0)) {
    report(pool, file, line,
           ndims > kMaxDims ? "%s with %llu dimensions; the maximum is %llu"
                            : "%s with %llu dimensions and no shape; the maximum is %llu",
           what, static_cast<Unsigned>(ndims), static_cast<Unsigned>(kMaxDims));
  }
  data.ndims = static_cast<uint32_t>(ndims > kMaxDims ? kMaxDims : shapes == nullptr ? 0 : ndims);
  for (uint32_t i = 0; i < kMaxDims; ++i) {
    data.shapes[i] = i < data.ndims ? shapes[i] : 0;
    data.raw_shapes[i] = data.shapes[i];
    data.offsets[i] = 0;
    data.order[i] = static_cast<uint8_t>(i);
  }
  return !is_wrong;
}

// Describe a part of a buffer as rows of the whole buffer, if buffer and part consist of whole
// rows. Otherwise the part keeps its own shape and start_offset.
inline void place_rows(TensorData& data) {
  const uint64_t element_bytes = get_element_size(data.dtype);
  uint64_t row = 1;
  for (uint32_t i = 1; i < data.ndims; ++i) row *= data.shapes[i];
  if (data.ndims == 0 || row == 0 || element_bytes == 0) return;
  const uint64_t buffer_elements = data.buffer.size / element_bytes;
  if (buffer_elements % row != 0 || data.start_offset % row != 0) return;
  data.raw_shapes[0] = buffer_elements / row;
  data.offsets[0] = data.start_offset / row;
}

inline TensorNode* reshape_of(TensorNode* from, const uint64_t shapes[], uint64_t ndims,
                              const char* file, int32_t line) {
  if (from == nullptr) return report_empty("reshape", file, line);
  TensorNode* node = derive(from, file, line);
  if (node == nullptr) return nullptr;
  TensorPool* pool = TensorPool::of(from);
  const TensorData& old = from->data;
  if (!set_shape(node->data, shapes, ndims, pool, "reshape", file, line)) return node;
  node->is_permuted = 0;
  const uint64_t before = old.numel();
  const uint64_t after = node->data.numel();
  if (before != after) {
    report(pool, file, line,
           "reshape of %llu elements to %llu; use a shape with the same number of elements",
           static_cast<Unsigned>(before), static_cast<Unsigned>(after));
  } else if (!old.is_contiguous()) {
    report(pool, file, line,
           "reshape of a tensor that is not contiguous (a view of a part of its rows, or a "
           "transposed tensor); reshape the whole tensor first and take a view of the result");
  } else {
    place_rows(node->data);
  }
  return node;
}

inline bool is_reshape_valid(const TensorData& data, const uint64_t shapes[], uint64_t ndims) {
  if (ndims > kMaxDims || (ndims > 0 && shapes == nullptr)) return false;
  uint64_t elements = 1;
  for (uint64_t i = 0; i < ndims; ++i) elements *= shapes[i];
  return elements == data.numel() && data.is_contiguous();
}

inline pto::engine::Region region_of(const TensorData& data) {
  const uint64_t element_bytes = get_element_size(data.dtype);
  const uint64_t first = data.buffer.addr + data.start_offset * element_bytes;
  uint32_t dim_in_memory[kMaxDims] = {};
  for (uint32_t dim = 0; dim < data.ndims; ++dim) dim_in_memory[data.order[dim]] = dim;
  pto::engine::Region region;
  pto::engine::RegionBuilder builder(region, first, element_bytes, data.owner);
  for (uint32_t place = data.ndims; place-- > 0;) {
    const uint32_t dim = dim_in_memory[place];
    builder.add(data.raw_shapes[dim], data.offsets[dim], data.shapes[dim]);
  }
  builder.finish();
  return region;
}

// Return whether two tensors overlap. If one of them has no address, they can overlap only as views
// of one buffer.
inline bool is_overlap(TensorNode* left, TensorNode* right, const char* file, int32_t line) {
  if (left == nullptr || right == nullptr) {
    report_empty("is_overlap", file, line);
    return false;
  }
  refresh(left);
  refresh(right);
  const TensorNode* left_root = left->root != nullptr ? left->root : left;
  const TensorNode* right_root = right->root != nullptr ? right->root : right;
  if (left_root != right_root && (left->data.buffer.addr == 0 || right->data.buffer.addr == 0)) {
    return false;
  }
  return pto::engine::is_overlap(region_of(left->data), region_of(right->data));
}

inline TensorNode* allocate_node(const char* file, int32_t line) {
  TensorPool* pool = current_pool;
  TensorNode* node = pool == nullptr ? nullptr : pool->allocate();
  if (node == nullptr) return pool == nullptr ? nullptr : report_memory(pool, file, line);
  node->root = nullptr;
  node->is_permuted = 0;
  node->data.start_offset = 0;
  node->data.is_pipe = 0;
  node->data.dropped = 0;
  node->data.tag = 0;
  for (uint8_t& byte : node->data.reserved) byte = 0;
  node->data.owner = -1;
  return node;
}

inline TensorNode* make_node(uint64_t address, const uint64_t shapes[], uint64_t ndims,
                             DataType dtype, int32_t version, const char* file, int32_t line) {
  TensorNode* node = allocate_node(file, line);
  if (node == nullptr) return nullptr;
  TensorData& data = node->data;
  data.dtype = dtype;
  data.version = version;
  data.buffer = {address, 0};
  if (!set_shape(data, shapes, ndims, current_pool, "a tensor", file, line)) return node;
  uint64_t bytes = get_element_size(dtype);
  if (__builtin_expect(bytes == 0, 0)) {
    report(current_pool, file, line,
           "a tensor of the invalid data type %u; use a DataType, 0 to %u",
           static_cast<unsigned>(dtype), static_cast<unsigned>(DataType::FLOAT8_E5M2));
  }
  bool is_too_big = false;
  for (uint32_t i = 0; i < data.ndims; ++i) {
    is_too_big |= __builtin_mul_overflow(bytes, data.shapes[i], &bytes);
  }
  if (__builtin_expect(is_too_big, 0)) {
    report(current_pool, file, line, "a tensor of more than 2^64 bytes; check its shape");
    bytes = 0;
  }
  data.buffer.size = bytes;
  return node;
}

inline TensorNode* make_pipe_node(const char* file, int32_t line) {
  const uint64_t no_elements = 0;
  TensorNode* node = make_node(0, &no_elements, 1, DataType::UINT8, 0, file, line);
  if (node != nullptr) node->data.is_pipe = 1;
  return node;
}

}  // namespace pto_orchestration

#endif
