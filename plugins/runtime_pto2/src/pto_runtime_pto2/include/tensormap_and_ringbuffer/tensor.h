// Tensors of an orchestration: handles on views into buffers.
//
//   uint64_t shapes[2] = {128, 128};
//   Tensor input = make_tensor_external(pointer, shapes, 2, DataType::FLOAT32);
//   Tensor scratch = make_tensor(shapes, 2);   // has no address yet
//
// A Tensor is a pointer with a count: copies are the same tensor. view, reshape, transpose and
// copy() give new tensors over the same buffer. A buffer without an address gets one when one of
// its tensors is submitted as an output; from then on all of them show it, earlier copies and views
// included. Its memory is the runtime's affair and follows scopes, not handles.
//
// A wrong call is a usage error of the run, at the line of the call; what it returns is good for
// nothing but going on.
#ifndef PTO2_TENSOR_H
#define PTO2_TENSOR_H

#include <cstdint>

#include "data_type.h"
#include "tensor_data.h"
#include "tensor_node.h"

class Tensor {
 public:
  Tensor() noexcept = default;
  Tensor(const Tensor& other) noexcept : node_(other.node_) {
    pto_orchestration::TensorPool::add_reference(node_);
  }
  Tensor(Tensor&& other) noexcept : node_(other.node_) { other.node_ = nullptr; }
  Tensor& operator=(const Tensor& other) noexcept {
    pto_orchestration::TensorPool::add_reference(other.node_);
    pto_orchestration::TensorPool::drop_reference(node_);
    node_ = other.node_;
    return *this;
  }
  Tensor& operator=(Tensor&& other) noexcept {
    pto_orchestration::TensorNode* taken = other.node_;
    other.node_ = node_;
    node_ = taken;
    return *this;
  }
  ~Tensor() { pto_orchestration::TensorPool::drop_reference(node_); }

  // Valid while a handle on this tensor is.
  TensorData& data(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return pto_orchestration::data_of(node_, file, line);
  }

  // The part of this tensor that starts at `offsets` and has `shapes`, each with ndims values.
  // Offsets count from the start of this tensor, which may be a view itself.
  Tensor view(const uint64_t shapes[], const uint64_t offsets[],
              const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return Tensor(pto_orchestration::view_of(node_, shapes, offsets, file, line));
  }

  // The same elements in another shape; this tensor must be contiguous.
  Tensor reshape(const uint64_t shapes[], uint64_t ndims, const char* file = __builtin_FILE(),
                 int32_t line = __builtin_LINE()) const {
    return Tensor(pto_orchestration::reshape_of(node_, shapes, ndims, file, line));
  }

  // The same elements with the dimensions x and y exchanged; nothing moves in memory.
  Tensor transpose(uint64_t x, uint64_t y, const char* file = __builtin_FILE(),
                   int32_t line = __builtin_LINE()) const {
    return Tensor(pto_orchestration::transpose_of(node_, x, y, file, line));
  }

  // A tensor of its own (its version, say, may differ) over the same elements.
  Tensor copy(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return Tensor(pto_orchestration::copy_of(node_, file, line));
  }

  uint64_t numel(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return pto_orchestration::element_count(data(file, line));
  }

  // Whether the elements lie one after the other in memory, last dimension fastest.
  bool is_contiguous(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) const {
    return pto_orchestration::is_contiguous(data(file, line));
  }

  explicit Tensor(pto_orchestration::TensorNode* node) noexcept : node_(node) {}
  pto_orchestration::TensorNode* node() const { return node_; }

 private:
  pto_orchestration::TensorNode* node_ = nullptr;  // null: declared and never assigned
};

// Memory that is there already: an argument of the orchestration, usually. With a null `addr` it is
// what make_tensor gives.
inline Tensor make_tensor_external(void* addr, const uint64_t shapes[], uint64_t ndims,
                                   DataType dtype = DataType::FLOAT32, int32_t version = 0,
                                   const char* file = __builtin_FILE(),
                                   int32_t line = __builtin_LINE()) {
  return Tensor(pto_orchestration::make_node(reinterpret_cast<uintptr_t>(addr), shapes, ndims,
                                             dtype, version, file, line));
}

// A tensor whose buffer the runtime allocates when it is first submitted as an output. A shape with
// a 0 makes a key: it orders tasks and has no memory.
inline Tensor make_tensor(const uint64_t shapes[], uint64_t ndims,
                          DataType dtype = DataType::FLOAT32, int32_t version = 0,
                          const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) {
  return Tensor(pto_orchestration::make_node(0, shapes, ndims, dtype, version, file, line));
}

// Order without data: what goes through it stays in the pipe between the cores of a cluster.
inline Tensor make_pipe_tensor(const char* file = __builtin_FILE(),
                               int32_t line = __builtin_LINE()) {
  return Tensor(pto_orchestration::make_pipe_node(file, line));
}

#endif
