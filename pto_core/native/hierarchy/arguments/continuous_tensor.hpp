// ContinuousTensor: where an array lies, its shape and its data type; what a task's tensors are.
//
// A Python type by hand, as are the others of this room: one is made for each tensor of each task.
// Used with the GIL held. Nothing changes after it was made but the address, and the origin with
// it, when a submit as OUTPUT allocates it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "arguments/visible_memory.hpp"
#include "pto/abi/arguments.h"

namespace pto::hierarchy {

namespace nb = nanobind;

// What is known of the memory.
enum class Origin : uint8_t {
  kArray,    // of an array of this process: children see it only if it is shared memory
  kPointer,  // whatever the user said
  kHeap      // of a heap ring, or not allocated yet
};

struct ContinuousTensor {
  PyObject_HEAD pto_tensor data;
  uint64_t bytes;
  PyObject* owner;  // keeps the memory, and its size, as they are; may be null
  Origin origin;
  bool is_read_only;
};

extern PyTypeObject* continuous_tensor_type;

inline bool is_continuous_tensor(PyObject* object) {
  return Py_TYPE(object) == continuous_tensor_type;
}

// A new reference; `owner` gets one more. Throws python_error when `data` cannot be.
ContinuousTensor* make_tensor(const pto_tensor& data, Origin origin, PyObject* owner,
                              bool is_read_only = false);

// Of anything that is an array: NumPy, the buffer protocol, DLPack. Throws python_error.
ContinuousTensor* tensor_of_array(PyObject* array);

// Of a DataType, or of what NumPy takes as a dtype. Throws python_error.
uint8_t code_of_dtype(nb::handle dtype);

// Throws python_error when that is no tensor. `dtype`: a DataType, or what NumPy takes.
pto_tensor tensor_at(uint64_t address, nb::handle shape, nb::handle dtype, bool is_child_memory);

// A new reference to a NumPy array over the memory, which `base` keeps if it is not null; without
// one the memory has to be shared. `index`: of the argument, for messages; -1: none. Throws
// python_error.
PyObject* array_over(const pto_tensor& tensor, PyObject* base, int64_t index, bool is_read_only);

// Throws python_error unless `memory`, of a Worker, has all of the tensor. `index`: of the
// argument.
void check_visible(VisibleMemory& memory, const ContinuousTensor& tensor, int64_t index);

void bind_continuous_tensor(nb::module_& module);

}  // namespace pto::hierarchy
