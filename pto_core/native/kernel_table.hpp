// The kernels that a device has loaded, by the Python object they were loaded from.
//
// Used with the GIL held. A loaded kernel stays loaded, and at its place in memory, until the
// device is closed; when the device is lost it stays for good, because a thread may still be
// inside.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "pto/abi/backend.h"
#include "scalars.hpp"
#include "views.hpp"

namespace pto::core {

namespace nb = nanobind;

class Device;

// What a Python kernel gets for one argument: a View*, or a ScalarKind (views have larger values).
using ArgumentSpec = uintptr_t;
using CallSignature = std::vector<ArgumentSpec>;

inline ArgumentSpec spec_of(const View* view) {
  return reinterpret_cast<ArgumentSpec>(view);
}
inline ArgumentSpec spec_of(ScalarKind kind) {
  return static_cast<ArgumentSpec>(kind);
}
inline bool is_scalar(ArgumentSpec spec) {
  return spec <= spec_of(ScalarKind::kFloat64);
}

struct LoadedKernel {
  Device* device = nullptr;
  nb::object callable;  // keeps the key alive
  nb::object function;  // invalid for a kernel that is a binary
  std::string name;
  int32_t core_type = 0;
  uint64_t address = 0;
  bool is_declared = false;  // `declared` says what the kernel gets under a C++ orchestration
  CallSignature declared;
  mutable bool was_kept = false;  // it kept an array, and its user was told

  bool is_python() const { return function.is_valid(); }
};

class KernelTable {
 public:
  LoadedKernel* find(PyObject* callable) const;
  LoadedKernel* add(std::unique_ptr<LoadedKernel> kernel);
  const LoadedKernel* at_address(uint64_t address) const;
  int traverse(visitproc visit, void* arg) const;
  // For a lost device: gives the kernels up instead of freeing them.
  void abandon();

 private:
  std::unordered_map<PyObject*, std::unique_ptr<LoadedKernel>> kernels_;
};

// The pto_kernel_callback of Python kernels; `context` is the LoadedKernel. Takes the GIL.
int32_t call_python_kernel(void* context, const pto_payload* payload, uint32_t core,
                           pto_error* error);

}  // namespace pto::core
