#pragma once

#include <string>

#include "device.hpp"
#include "kernel_table.hpp"
#include "pto/abi/tensor.h"

namespace pto::core {

// The parameters of one task with tensors, checked and converted to the form of the ABI.
//
// The object lives on the stack during one submit, and allocates no memory. Use with the GIL held.
class TaskParameters {
 public:
  TaskParameters(const OpenDevice& device, const LoadedKernel& kernel)
      : device_(device), kernel_(kernel) {}

  // Check and convert the arguments of a task. `appended`: the number of scalars that the runtime
  // adds. Raises UsageError or CapacityError.
  void take(PyObject* const* arguments, size_t count, size_t appended);

  // Called after a submit: store in each array the address of the memory that the submit allocated
  // for it.
  void keep_allocations() {
    for (size_t i = 0; i < fresh_count_; ++i) fresh_[i]->keep_allocation();
  }

  pto_param* data() { return params_; }
  uint32_t size() const { return static_cast<uint32_t>(count_); }
  bool has_scalars() const { return scalars_ != 0; }
  const ArgumentSpec* specs() const { return specs_; }

 private:
  [[noreturn]] void refuse(size_t count, size_t limit, const char* what) const;
  void take_one(size_t position, PyObject* object);
  void take_directed(size_t position, PyObject* object);
  void take_array(size_t position, DeviceArray& array, Tag direction);
  void check_unusual(size_t position, DeviceArray& array, uint32_t tag);

  const OpenDevice& device_;
  const LoadedKernel& kernel_;
  size_t count_ = 0;
  size_t tensors_ = 0;
  size_t scalars_ = 0;
  size_t fresh_count_ = 0;
  pto_param params_[PTO_MAX_KERNEL_ARGS];
  ArgumentSpec specs_[PTO_MAX_KERNEL_ARGS];
  DeviceArray* fresh_[PTO_MAX_KERNEL_ARGS];  // arrays that had no memory before the submit
};

}  // namespace pto::core
