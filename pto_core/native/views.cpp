#include "views.hpp"

#include <algorithm>
#include <cstdint>

#include "data_types.hpp"
#include "errors.hpp"

namespace pto::core {
namespace {

npy_intp extent_of(nb::handle extent, nb::handle shape) {
  const Py_ssize_t value = PyNumber_AsSsize_t(extent.ptr(), PyExc_OverflowError);
  if (value == -1 && PyErr_Occurred()) PyErr_Clear();
  if (value < 0) {
    raise_usage("shape " + shown(shape) +
                " is not valid; use non-negative integers, as in (128, 128)" +
                (value == -1 ? ", because extents are not inferred" : ""));
  }
  return value;
}

}  // namespace

uint64_t bytes_of(uint8_t code, const std::vector<npy_intp>& shape) {
  uint64_t bytes = element_bytes(code);
  for (npy_intp extent : shape) {
    if (extent == 0) return 0;
  }
  for (npy_intp extent : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes) ||
        bytes > static_cast<uint64_t>(INT64_MAX)) {
      raise_usage("an array with extents up to " + std::to_string(extent) +
                  " would exceed the address space; use a smaller shape");
    }
  }
  return bytes;
}

PyObject* View::array_at(uint64_t address, bool is_writable) const {
  auto* descriptor = descriptor_of(code);
  Py_INCREF(descriptor);
  return PyArray_NewFromDescr(&PyArray_Type, descriptor, static_cast<int>(shape.size()),
                              shape.data(), nullptr, reinterpret_cast<void*>(address),
                              is_writable ? NPY_ARRAY_CARRAY : NPY_ARRAY_CARRAY_RO, nullptr);
}

const View* ViewTable::intern(uint8_t code, const npy_intp* shape, size_t dimensions) {
  if (last_ && last_->code == code && last_->shape.size() == dimensions &&
      std::equal(shape, shape + dimensions, last_->shape.begin()))
    return last_;
  std::pair key(code, std::vector<npy_intp>(shape, shape + dimensions));
  auto found = views_.find(key);
  if (found != views_.end()) return last_ = found->second.get();
  const uint64_t bytes = bytes_of(code, key.second);
  auto view = std::make_unique<View>(View{code, key.second, bytes});
  return last_ = views_.emplace(std::move(key), std::move(view)).first->second.get();
}

std::vector<npy_intp> shape_of_object(nb::handle shape) {
  std::vector<npy_intp> extents;
  if (PyIndex_Check(shape.ptr())) {
    extents.push_back(extent_of(shape, shape));
  } else {
    PyObject* sequence = PySequence_Fast(shape.ptr(), "not a sequence");
    if (!sequence) {
      PyErr_Clear();
      raise_usage("shape " + shown(shape) + " is not valid; use an integer or a tuple of integers");
    }
    nb::object keep = nb::steal(sequence);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i)
      extents.push_back(extent_of(PySequence_Fast_GET_ITEM(sequence, i), shape));
  }
  if (extents.size() > NPY_MAXDIMS_LEGACY_ITERS) {
    raise_usage("shape " + shown(shape) + " has " + std::to_string(extents.size()) +
                " dimensions; at most 32 are supported");
  }
  return extents;
}

std::vector<npy_intp> integers_of_object(nb::handle integers) {
  PyObject* sequence = PySequence_Fast(integers.ptr(), "not a sequence");
  nb::object keep = nb::steal(sequence);
  std::vector<npy_intp> values;
  for (Py_ssize_t i = 0; sequence && i < PySequence_Fast_GET_SIZE(sequence); ++i)
    values.push_back(
        PyNumber_AsSsize_t(PySequence_Fast_GET_ITEM(sequence, i), PyExc_OverflowError));
  if (!PyErr_Occurred()) return values;
  PyErr_Clear();
  raise_usage(shown(integers) + " is not a sequence of integers; pass one such as (1, 0)");
}

nb::tuple shape_tuple(const View& view) {
  nb::object shape = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(view.shape.size())));
  for (size_t i = 0; i < view.shape.size(); ++i)
    PyTuple_SET_ITEM(shape.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromSsize_t(view.shape[i]));
  return nb::borrow<nb::tuple>(shape);
}

}  // namespace pto::core
