// Arrays in device memory, as Python objects.
//
// Call with the GIL held. `buffer->live` becomes false when the user frees the memory, when its run
// ends, or when the device is closed. Every use checks it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "numpy_api.hpp"
#include "pto/abi/tensor.h"
#include "views.hpp"

namespace pto::core {

namespace nb = nanobind;

// Views of a buffer in the form of pto_tensor_data: a box of the buffer, and the order of its
// dimensions.
//
// If an integer index removes a dimension, the layout keeps it with extent 1, so that the box has
// as many dimensions as the buffer. A bit in `dropped` hides the dimension from Python.
using Extents = std::vector<npy_intp>;

// Return the view of a whole buffer of this shape, which has at most PTO_MAX_DIMS dimensions.
pto_tensor_data whole_tensor(uint8_t code, const Extents& shape, uint64_t bytes);

// Return the number of elements from one index of dimension `dim` to the next.
uint64_t stride_of(const pto_tensor_data& data, uint32_t dim);
inline bool is_dropped(const pto_tensor_data& data, uint32_t dim) {
  return (data.dropped >> dim & 1) != 0;
}
// Return the extents of the dimensions that Python shows.
Extents shown_shape(const pto_tensor_data& data);
bool is_contiguous(const pto_tensor_data& data);

void cut(pto_tensor_data& data, uint32_t dim, uint64_t first, uint64_t count);
void drop(pto_tensor_data& data, uint32_t dim);
// Permute the dimensions. `axes`: the shown dimensions in their new order.
void permute(pto_tensor_data& data, const std::vector<uint32_t>& axes);
// Reshape a contiguous view. The number of elements does not change.
void give_shape(pto_tensor_data& data, const Extents& shape);

// Return a new reference to a NumPy array over the view, which must stay valid while the array is
// used; null with an exception set. A pipe is None.
PyObject* array_of(const pto_tensor_data& data);

class OpenDevice;

// Whether a run is over. All tensors of its graph share this object.
struct RunMark {
  bool is_over = false;
};

// One allocation. A run frees its own allocations. Any other allocation is freed with the last
// array that uses it. A tensor of a graph has no memory at first: the first submit that writes the
// tensor allocates memory from a heap ring, and sets `address` and the owner task.
struct Buffer {
  OpenDevice* device;
  uint64_t address = 0;
  uint64_t bytes;
  int64_t owner = -1;
  bool live = true;
  bool of_run;  // its run frees it, not the last array
  std::shared_ptr<const RunMark> of_graph;

  Buffer(OpenDevice* owner, uint64_t at, uint64_t size, bool run);
  Buffer(OpenDevice* owner, uint64_t size, std::shared_ptr<const RunMark> graph);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  bool is_live() const { return live && !(of_graph && of_graph->is_over); }
};

class DeviceArray {
 public:
  // Return an array over the whole buffer.
  DeviceArray(nb::object device, std::shared_ptr<Buffer> buffer, const View* view);
  // Return a tensor that orders tasks but has no memory.
  static DeviceArray pipe(nb::object device, std::shared_ptr<Buffer> buffer, const View* view);

  const View& view() const { return *view_; }
  // Return the address of the first element; 0 while there is no memory.
  uint64_t address() const;
  const Buffer& buffer() const { return *buffer_; }
  bool belongs_to(const OpenDevice* device) const {
    return buffer_->is_live() && buffer_->device == device;
  }
  bool is_read_only() const { return is_read_only_; }
  void set_read_only() { is_read_only_ = true; }
  bool is_contiguous() const { return is_flat_ || core::is_contiguous(data_); }

  // Raise UsageError if the memory was freed, or if it does not belong to `device`.
  void require(const OpenDevice* device) const;
  // Raise UsageError if there is no memory, or if it is not contiguous. The message starts with
  // `what`.
  void require_contiguous(const std::string& what) const;

  // For a submit: tensor() returns the data that the submit reads and changes; keep_allocation()
  // then stores the new address and owner in the buffer. tensor() raises UsageError if the array
  // has more dimensions than a task accepts.
  pto_tensor_data& tensor() {
    if (is_flat_) refuse_dimensions();
    if (data_.buffer.addr == 0 && buffer_->address != 0) {
      data_.buffer.addr = buffer_->address;
      data_.owner = buffer_->owner;
    }
    return data_;
  }
  void keep_allocation() {
    buffer_->address = data_.buffer.addr;
    buffer_->owner = data_.owner;
  }

  nb::object to_host(nb::handle out) const;
  // Copy an array with the same number of bytes into this one.
  void from_host(nb::handle array);
  // Return a view of contiguous memory from byte `offset` on, with another type and shape.
  DeviceArray retyped(uint64_t offset, nb::handle shape, nb::handle dtype) const;
  void free();
  DeviceArray item(nb::handle index) const;
  DeviceArray reshape(nb::handle shape) const;
  DeviceArray transpose(nb::handle axes) const;
  nb::object dtype() const;
  std::string repr() const;

  static PyTypeObject* type;

 private:
  DeviceArray with(const pto_tensor_data& data) const;
  [[noreturn]] void refuse_dimensions() const;

  nb::object device_;  // declared first, so that the buffer is destroyed before its device
  std::shared_ptr<Buffer> buffer_;
  const View* view_;           // shape and type as Python shows them
  bool is_flat_ = false;       // the array has too many dimensions for a tensor, so `data_` has one
  bool is_read_only_ = false;  // whether writes are refused, because they would be lost
  pto_tensor_data data_;
};

void bind_device_array(nb::module_& module);

}  // namespace pto::core
