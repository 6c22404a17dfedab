// The methods that TaskArgs and TaskArgsView share.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>

#include "errors.hpp"

namespace pto::worker {

namespace nb = nanobind;

// Return the index of one of `count` items. Raises IndexError, or TypeError if `index` is no
// integer.
inline size_t index_of(PyObject* index, size_t count, const char* what) {
  Py_ssize_t value = PyNumber_AsSsize_t(index, PyExc_IndexError);
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  const auto size = static_cast<Py_ssize_t>(count);
  if (value < 0) value += size;
  if (value >= 0 && value < size) return static_cast<size_t>(value);
  PyErr_Format(PyExc_IndexError, "there is no %s %S: the task has %zd", what, index, size);
  throw nb::python_error();
}

// Return a new reference to a tuple of the scalars as unsigned integers.
inline PyObject* scalar_tuple(std::span<const uint64_t> scalars) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(scalars.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < scalars.size(); ++i)
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i),
                     PyLong_FromUnsignedLongLong(scalars[i]));
  return tuple.release().ptr();
}

}  // namespace pto::worker
