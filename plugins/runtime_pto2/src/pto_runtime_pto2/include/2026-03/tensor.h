// Tensors of an orchestration: handles of views of buffers.
//
//   uint64_t shapes[2] = {128, 128};
//   Tensor input = make_tensor_external(pointer, shapes, 2, DataType::FLOAT32);
//   Tensor scratch = make_tensor(shapes, 2);   // has no address yet
//
// A Tensor is a reference-counted pointer: copies refer to the same tensor. view, reshape,
// transpose and copy() create new tensors over the same buffer. A buffer without an address gets
// one when one of its tensors is submitted as an output. All tensors of the buffer then have this
// address, including earlier copies and views. The runtime manages the memory, whose lifetime
// depends on scopes, not on Tensor objects.
//
// An invalid call is a usage error of the run, at the line of the call. The only valid use of its
// result is as an argument of other calls.
#ifndef PTO2_TENSOR_H
#define PTO2_TENSOR_H

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "data_type.h"
#include "pto_assert.h"
#include "tensor_data.h"
#include "tensor_node.h"

namespace pto_orchestration {

// A reference to a TensorNode. Copies share the node. An empty handle has no node.
class TensorHandle {
 public:
  TensorHandle() noexcept = default;
  explicit TensorHandle(TensorNode* node) noexcept : node_(node) {}
  TensorHandle(const TensorHandle& other) noexcept : node_(other.node_) {
    TensorPool::add_reference(node_);
  }
  TensorHandle(TensorHandle&& other) noexcept : node_(other.node_) { other.node_ = nullptr; }
  TensorHandle& operator=(const TensorHandle& other) noexcept {
    TensorPool::add_reference(other.node_);
    TensorPool::drop_reference(node_);
    node_ = other.node_;
    return *this;
  }
  TensorHandle& operator=(TensorHandle&& other) noexcept {
    TensorNode* taken = other.node_;
    other.node_ = node_;
    node_ = taken;
    return *this;
  }
  ~TensorHandle() { TensorPool::drop_reference(node_); }

  // Return the data of the tensor. The reference is valid as long as a handle of this tensor
  // exists.
  TensorData& data(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return data_of(node_, file, line);
  }

  TensorNode* node() const { return node_; }

 private:
  TensorNode* node_ = nullptr;
};

}  // namespace pto_orchestration

class Tensor : public pto_orchestration::TensorHandle {
 public:
  // The number of the tensor among the live tensors of the run. Copies have the same number. It is
  // -1 if the tensor was declared and never assigned.
  int32_t index = -1;

  Tensor() noexcept = default;
  explicit Tensor(pto_orchestration::TensorNode* node) noexcept
      : TensorHandle(node), index(node == nullptr ? -1 : static_cast<int32_t>(node->index)) {}

  // Return the part of this tensor that starts at `offsets` and has `shapes`, each with ndims
  // values. Offsets count from the start of this tensor, which may be a view itself.
  Tensor view(const uint64_t shapes[], const uint64_t offsets[],
              const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return Tensor(pto_orchestration::view_of(node(), shapes, offsets, file, line));
  }

  // Return the same elements with another shape. This tensor must be contiguous.
  Tensor reshape(const uint64_t shapes[], uint64_t ndims, const char* file = __builtin_FILE(),
                 int32_t line = __builtin_LINE()) const {
    return Tensor(pto_orchestration::reshape_of(node(), shapes, ndims, file, line));
  }

  // Return the same elements with the dimensions x and y exchanged. No memory is moved.
  Tensor transpose(uint64_t x, uint64_t y, const char* file = __builtin_FILE(),
                   int32_t line = __builtin_LINE()) const {
    return Tensor(pto_orchestration::transpose_of(node(), x, y, file, line));
  }

  // Return a separate tensor over the same elements, whose version may be set independently.
  Tensor copy(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return Tensor(pto_orchestration::copy_of(node(), file, line));
  }

  uint64_t numel(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return data(file, line).numel();
  }

  // Return whether the elements are contiguous in memory, last dimension fastest.
  bool is_contiguous(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return data(file, line).is_contiguous();
  }

  // Return whether reshape() accepts this shape: the same number of elements, and a contiguous
  // tensor.
  bool valid_reshape(const uint64_t shapes[], uint64_t ndims, const char* file = __builtin_FILE(),
                     int32_t line = __builtin_LINE()) const {
    return pto_orchestration::is_reshape_valid(data(file, line), shapes, ndims);
  }

  // Return whether transpose() accepts these dimensions.
  bool valid_transpose(uint64_t x, uint64_t y, const char* file = __builtin_FILE(),
                       int32_t line = __builtin_LINE()) const {
    const uint32_t ndims = data(file, line).ndims;
    return x < ndims && y < ndims;
  }

  // Return whether the two tensors share memory, by the rule that orders tasks. The result is exact
  // for views of one raw shape and for contiguous views. For other views, it states whether the
  // byte ranges from the first to the last element overlap.
  bool is_overlap(const Tensor& other, const char* file = __builtin_FILE(),
                  int32_t line = __builtin_LINE()) const {
    return pto_orchestration::is_overlap(node(), other.node(), file, line);
  }

  // Return a description for logs.
  std::string dump(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return node() == nullptr ? "Tensor{empty}" : data(file, line).dump();
  }
};

// Return a tensor over existing memory, usually an argument of the orchestration. If `addr` is
// null, the result is the same as that of make_tensor.
inline Tensor make_tensor_external(void* addr, const uint64_t shapes[], uint64_t ndims,
                                   DataType dtype = DataType::FLOAT32, int32_t version = 0,
                                   const char* file = __builtin_FILE(),
                                   int32_t line = __builtin_LINE()) {
  return Tensor(pto_orchestration::make_node(reinterpret_cast<uintptr_t>(addr), shapes, ndims,
                                             dtype, version, file, line));
}

// Return a tensor whose buffer the runtime allocates when it is first submitted as an output. If
// the shape contains a 0, the tensor is a key: it orders tasks and has no memory.
inline Tensor make_tensor(const uint64_t shapes[], uint64_t ndims,
                          DataType dtype = DataType::FLOAT32, int32_t version = 0,
                          const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) {
  return Tensor(pto_orchestration::make_node(0, shapes, ndims, dtype, version, file, line));
}

// Return a tensor that orders tasks and has no data, for data that stays in the pipe between the
// cores of a cluster.
inline Tensor make_pipe_tensor(const char* file = __builtin_FILE(),
                               int32_t line = __builtin_LINE()) {
  return Tensor(pto_orchestration::make_pipe_node(file, line));
}

#endif
