#include "tensor_layout.hpp"

#include <cstring>

#include "data_types.hpp"

namespace pto::core {

pto_tensor_data whole_tensor(uint8_t code, const Extents& shape, uint64_t bytes) {
  pto_tensor_data data;
  std::memset(&data, 0, sizeof(data));
  data.buffer.size = bytes;
  data.ndims = static_cast<uint32_t>(shape.size());
  data.dtype = code;
  data.owner = -1;
  for (uint32_t dim = 0; dim < data.ndims; ++dim) {
    data.raw_shapes[dim] = data.shapes[dim] = static_cast<uint64_t>(shape[dim]);
    data.order[dim] = static_cast<uint8_t>(dim);
  }
  return data;
}

uint64_t stride_of(const pto_tensor_data& data, uint32_t dim) {
  uint64_t stride = 1;
  for (uint32_t other = 0; other < data.ndims; ++other)
    if (data.order[other] > data.order[dim]) stride *= data.raw_shapes[other];
  return stride;
}

Extents shown_shape(const pto_tensor_data& data) {
  Extents shape;
  for (uint32_t dim = 0; dim < data.ndims; ++dim)
    if (!is_dropped(data, dim)) shape.push_back(static_cast<npy_intp>(data.shapes[dim]));
  return shape;
}

bool is_contiguous(const pto_tensor_data& data) {
  for (uint32_t dim = 0; dim < data.ndims; ++dim)
    if (data.shapes[dim] == 0) return true;
  uint64_t expected = 1;
  for (uint32_t dim = data.ndims; dim-- > 0;) {
    if (data.shapes[dim] == 1) continue;
    if (stride_of(data, dim) != expected) return false;
    expected *= data.shapes[dim];
  }
  return true;
}

void cut(pto_tensor_data& data, uint32_t dim, uint64_t first, uint64_t count) {
  data.start_offset += first * stride_of(data, dim);
  data.offsets[dim] += first;
  data.shapes[dim] = count;
}

void drop(pto_tensor_data& data, uint32_t dim) {
  data.dropped = static_cast<uint8_t>(data.dropped | 1u << dim);
}

void permute(pto_tensor_data& data, const std::vector<uint32_t>& axes) {
  const pto_tensor_data before = data;
  uint32_t shown[PTO_MAX_DIMS];
  uint32_t count = 0;
  for (uint32_t dim = 0; dim < data.ndims; ++dim)
    if (!is_dropped(data, dim)) shown[count++] = dim;
  for (uint32_t axis = 0; axis < count; ++axis) {
    const uint32_t to = shown[axis];
    const uint32_t from = shown[axes[axis]];
    data.raw_shapes[to] = before.raw_shapes[from];
    data.shapes[to] = before.shapes[from];
    data.offsets[to] = before.offsets[from];
    data.order[to] = before.order[from];
  }
}

void give_shape(pto_tensor_data& data, const Extents& shape) {
  pto_tensor_data given = whole_tensor(static_cast<uint8_t>(data.dtype), shape, data.buffer.size);
  given.buffer = data.buffer;
  given.start_offset = data.start_offset;
  given.version = data.version;
  given.owner = data.owner;
  data = given;
}

PyObject* array_of(const pto_tensor_data& data) {
  if (data.is_pipe) return Py_NewRef(Py_None);
  const auto code = static_cast<uint8_t>(data.dtype);
  const uint64_t bytes = element_bytes(code);
  npy_intp shape[PTO_MAX_DIMS];
  npy_intp strides[PTO_MAX_DIMS];
  int dims = 0;
  for (uint32_t dim = 0; dim < data.ndims; ++dim) {
    if (is_dropped(data, dim)) continue;
    shape[dims] = static_cast<npy_intp>(data.shapes[dim]);
    strides[dims++] = static_cast<npy_intp>(stride_of(data, dim) * bytes);
  }
  auto* descriptor = descriptor_of(code);
  Py_INCREF(descriptor);
  const int access = data.tag == PTO_TAG_INPUT ? NPY_ARRAY_ALIGNED : NPY_ARRAY_BEHAVED;
  return PyArray_NewFromDescr(&PyArray_Type, descriptor, dims, shape, strides,
                              reinterpret_cast<void*>(data.buffer.addr + data.start_offset * bytes),
                              access, nullptr);
}

}  // namespace pto::core
