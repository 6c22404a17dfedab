// ContinuousTensor: the address, shape and data type of an array. The tensors of tasks have this
// type. A tensor may have a box: then tasks use only that part of its memory.
//
// The Python type is written with the C API, like the others in this folder, to be fast: each
// tensor of each task is a new object. Use it with the GIL held. The object is immutable, except
// that a submit as OUTPUT sets its address and its origin.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "arguments/visible_memory.hpp"
#include "engine/interface.hpp"
#include "pto/abi/arguments.h"

namespace pto::worker {

namespace nb = nanobind;

// The origin of the memory.
enum class Origin : uint8_t {
  kArray,    // memory of this process; children can access it only if it is shared
  kPointer,  // an address that the user passed
  kHeap      // in a heap ring, or not allocated yet
};

struct ContinuousTensor {
  PyObject_HEAD pto_tensor data;
  uint64_t bytes;
  PyObject* owner;  // the object that keeps the memory alive and its size unchanged; may be null
  Box* box;         // owned; null: tasks use the whole tensor
  Origin origin;
  bool is_read_only;
};

extern PyTypeObject* continuous_tensor_type;

inline bool is_continuous_tensor(PyObject* object) {
  return Py_TYPE(object) == continuous_tensor_type;
}

// Create a ContinuousTensor that holds a reference to `owner`. Return a new reference. Throws
// python_error if `data` is invalid.
ContinuousTensor* make_tensor(const pto_tensor& data, Origin origin, PyObject* owner,
                              bool is_read_only = false);

// Create a ContinuousTensor from any array: NumPy, the buffer protocol, DLPack. Throws
// python_error.
ContinuousTensor* tensor_of_array(PyObject* array);

// Return the code of a DataType, or of an object that NumPy accepts as a dtype. Throws
// python_error.
uint8_t code_of_dtype(nb::handle dtype);

// Create a tensor from an address. `dtype`: a DataType, or an object that NumPy accepts. Throws
// python_error if the values do not describe a tensor.
pto_tensor tensor_at(uint64_t address, nb::handle shape, nb::handle dtype, bool is_child_memory);

// Return a new reference to a NumPy array over the memory. `base`, if not null, keeps the memory
// alive; otherwise the memory must be shared. `index`: the number of the argument in messages, or
// -1. Throws python_error.
PyObject* array_over(const pto_tensor& tensor, PyObject* base, int64_t index, bool is_read_only);

// Throw python_error unless children of the Worker can access the whole tensor in `memory`.
// `index`: the number of the argument.
void check_visible(VisibleMemory& memory, const ContinuousTensor& tensor, int64_t index);

void bind_continuous_tensor(nb::module_& module);

}  // namespace pto::worker
