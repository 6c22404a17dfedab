// The loaded kernels of a device, by the Python object from which each kernel was loaded.
//
// Use with the GIL held. A loaded kernel stays loaded, at a fixed address, until the device is
// closed. A lost device keeps its kernels forever, because a thread may still run one of them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "pto/abi/backend.h"
#include "pto/abi/runtime.h"
#include "pto/engine/tag.hpp"
#include "scalars.hpp"
#include "views.hpp"

namespace pto::core {

namespace nb = nanobind;

class OpenDevice;

// The description of one argument of a Python kernel. A scalar: its ScalarKind. An array: a View*
// (larger than any ScalarKind), with the lowest bit set if the array is read-only. A tensor that
// TensorData describes: 0.
using ArgumentSpec = uintptr_t;
using CallSignature = std::vector<ArgumentSpec>;

constexpr ArgumentSpec kTensorSpec = 0;

inline ArgumentSpec spec_of(const View* view, bool is_read_only = false) {
  return reinterpret_cast<ArgumentSpec>(view) | static_cast<ArgumentSpec>(is_read_only);
}
inline const View* view_of(ArgumentSpec spec) {
  return reinterpret_cast<const View*>(spec & ~ArgumentSpec{1});
}
inline bool is_read_only(ArgumentSpec spec) {
  return (spec & 1) != 0;
}
inline ArgumentSpec spec_of(ScalarKind kind) {
  return static_cast<ArgumentSpec>(kind);
}
inline bool is_scalar(ArgumentSpec spec) {
  return spec != kTensorSpec && spec <= spec_of(ScalarKind::kBfloat16);
}

using engine::Tag;  // in Python: pto_core.kernels.Direction

// A parameter of a kernel, as its signature or annotations describe it.
struct TaskParameter {
  std::string name;
  Tag direction;
  int code;  // data type, or kNoType
};

// The signature of a kernel for a runtime that finds dependencies.
struct TaskSignature {
  std::vector<TaskParameter> parameters;
  size_t required = 0;
  // whether more arguments than `parameters` are accepted, with direction `rest`
  bool takes_more = true;
  Tag rest = Tag::kAny;
};

struct LoadedKernel {
  OpenDevice* device = nullptr;
  nb::object callable;  // keeps the Python object that is the key alive
  nb::object function;  // invalid for a kernel that is a binary
  std::string name;
  int32_t core_type = 0;
  uint64_t address = 0;
  bool is_declared = false;  // whether `declared` describes the arguments that a C++ orchestration
                             // passes
  CallSignature declared;
  TaskSignature task;
  std::vector<pto_declared_argument> arguments;  // those of `signature`
  pto_signature signature{};                     // `task`, for the runtime variant
  CallSignature scalars;          // the kinds of the scalars in `task`, for a C++ orchestration
                                  // with tensors
  mutable bool was_kept = false;  // whether the user was warned that the kernel kept an array

  bool is_python() const { return function.is_valid(); }
  Tag direction(size_t position) const {
    return position < task.parameters.size() ? task.parameters[position].direction : task.rest;
  }
  bool is_checked() const { return !task.parameters.empty() || !task.takes_more; }
  // Return the name of an argument for messages.
  std::string describe_argument(size_t position) const;
  // Convert a number to the declared type of an argument. Return nothing if `object` is not a
  // number. Raises UsageError if an array is declared.
  std::optional<ScalarValue> scalar(size_t position, nb::handle object) const;
  // Refuse an array where a scalar is declared.
  void check_array(size_t position) const {
    if (direction(position) == Tag::kScalar) refuse_array(position);
  }
  // Refuse a number of arguments that the signature does not accept. A submit adds `appended`
  // numbers, which a signature may list or omit.
  void check_count(size_t count, size_t appended) const;

 private:
  [[noreturn]] void refuse_array(size_t position) const;
};

class LoadedKernels {
 public:
  LoadedKernel* find(PyObject* callable) const;
  LoadedKernel* add(std::unique_ptr<LoadedKernel> kernel);
  const LoadedKernel* at_address(uint64_t address) const;
  int traverse(visitproc visit, void* arg) const;
  // For a lost device: leak the kernels, because they may still run.
  void abandon();

 private:
  std::unordered_map<PyObject*, std::unique_ptr<LoadedKernel>> kernels_;
};

// Return whether the calling thread runs a Python kernel. This can be the thread that called
// Device.run, if a backend runs kernels inside calls of the orchestration.
bool in_python_kernel();

// The pto_kernel_callback of Python kernels. It acquires the GIL. `context` is the LoadedKernel.
int32_t call_python_kernel(void* context, const pto_payload* payload, uint32_t core,
                           pto_error* error);

}  // namespace pto::core
