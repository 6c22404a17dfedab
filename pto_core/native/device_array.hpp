// Arrays in device memory, as Python sees them.
//
// Used with the GIL held. `buffer->live` turns false when the memory is freed, by the user, by the
// end of the run it belonged to, or by closing the device; every use checks it.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "views.hpp"

namespace pto::core {

namespace nb = nanobind;

class Device;

// One allocation. Freed by whoever made it: a run its own, the last array that shares it the rest.
struct Buffer {
  Device* device;
  uint64_t address;
  uint64_t bytes;
  bool live = true;
  bool of_run;  // freed by its run, not by the last array

  Buffer(Device* owner, uint64_t at, uint64_t size, bool run);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

class DeviceArray {
 public:
  DeviceArray(nb::object device, std::shared_ptr<Buffer> buffer, const View* view,
              uint64_t address);

  const View& view() const { return *view_; }
  uint64_t address() const { return address_; }
  const Buffer& buffer() const { return *buffer_; }
  bool belongs_to(const Device* device) const { return buffer_->live && buffer_->device == device; }

  // Raises UsageError when the memory is gone or belongs to another device than `device`.
  void require(const Device* device) const;

  nb::object to_host(nb::handle out) const;
  void free();
  DeviceArray item(nb::handle index) const;
  DeviceArray reshape(nb::handle shape) const;
  nb::object dtype() const;
  std::string repr() const;

  static PyTypeObject* type;

 private:
  nb::object device_;  // declared first: the buffer goes before the device it is in
  std::shared_ptr<Buffer> buffer_;
  const View* view_;
  uint64_t address_;
};

void bind_device_array(nb::module_& module);

}  // namespace pto::core
