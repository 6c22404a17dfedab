#include "scalars.hpp"

#include <bit>
#include <cstring>

#include "data_types.hpp"
#include "errors.hpp"
#include "numpy_api.hpp"
#include "pto/abi/dtype.h"

namespace pto::core {
namespace {

Scalar of_integer(PyObject* object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow == 0) return {static_cast<uint64_t>(value), ScalarKind::kSigned};
  const unsigned long long large = PyLong_AsUnsignedLongLong(object);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    raise_usage("the integer " + shown(object) +
                " does not fit into 64 bits; use an integer from -2**63 to 2**64 - 1");
  }
  return {large, ScalarKind::kUnsigned};
}

template <class T>
Scalar of_signed(const void* memory) {
  T value;
  std::memcpy(&value, memory, sizeof(T));
  return {static_cast<uint64_t>(static_cast<int64_t>(value)), ScalarKind::kSigned};
}

template <class T>
Scalar of_bits(const void* memory, ScalarKind kind) {
  T value;
  std::memcpy(&value, memory, sizeof(T));
  return {static_cast<uint64_t>(value), kind};
}

std::optional<Scalar> of_memory(const void* memory, uint8_t code) {
  switch (code) {
    case PTO_DTYPE_INT8:
      return of_signed<int8_t>(memory);
    case PTO_DTYPE_INT16:
      return of_signed<int16_t>(memory);
    case PTO_DTYPE_INT32:
      return of_signed<int32_t>(memory);
    case PTO_DTYPE_INT64:
      return of_signed<int64_t>(memory);
    case PTO_DTYPE_UINT8:
      return of_bits<uint8_t>(memory, ScalarKind::kUnsigned);
    case PTO_DTYPE_UINT16:
      return of_bits<uint16_t>(memory, ScalarKind::kUnsigned);
    case PTO_DTYPE_UINT32:
      return of_bits<uint32_t>(memory, ScalarKind::kUnsigned);
    case PTO_DTYPE_UINT64:
      return of_bits<uint64_t>(memory, ScalarKind::kUnsigned);
    case PTO_DTYPE_BOOL:
      return of_bits<uint8_t>(memory, ScalarKind::kBool);
    case PTO_DTYPE_FLOAT16:
      return of_bits<uint16_t>(memory, ScalarKind::kFloat16);
    case PTO_DTYPE_FLOAT32:
      return of_bits<uint32_t>(memory, ScalarKind::kFloat32);
    case PTO_DTYPE_FLOAT64:
      return of_bits<uint64_t>(memory, ScalarKind::kFloat64);
    default:
      return std::nullopt;
  }
}

// Convert a ctypes or NumPy scalar, which is a buffer without dimensions.
std::optional<Scalar> of_buffer(PyObject* object) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object, &buffer, PyBUF_FORMAT | PyBUF_ND) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  std::optional<Scalar> scalar;
  if (buffer.ndim == 0) {
    auto code = code_of_format(buffer.format, static_cast<size_t>(buffer.itemsize));
    if (code) scalar = of_memory(buffer.buf, *code);
  }
  PyBuffer_Release(&buffer);
  return scalar;
}

}  // namespace

std::optional<Scalar> scalar_of(nb::handle handle) {
  PyObject* object = handle.ptr();
  if (PyBool_Check(object))
    return Scalar{static_cast<uint64_t>(object == Py_True), ScalarKind::kBool};
  if (PyLong_Check(object)) return of_integer(object);
  if (PyFloat_CheckExact(object))
    return Scalar{std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(object)), ScalarKind::kFloat64};
  if (PyArray_Check(object)) return std::nullopt;
  if (PyObject_CheckBuffer(object)) return of_buffer(object);
  if (PyFloat_Check(object))
    return Scalar{std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(object)), ScalarKind::kFloat64};
  return std::nullopt;
}

ScalarKind scalar_kind_of(uint8_t code) {
  const uint64_t zero[2] = {};
  auto scalar = of_memory(zero, code);
  if (!scalar)
    raise_usage("data type code " + std::to_string(code) + " is not the type of a scalar");
  return scalar->kind;
}

PyObject* number_of(uint64_t bits, ScalarKind kind) {
  switch (kind) {
    case ScalarKind::kUnsigned:
      return PyLong_FromUnsignedLongLong(bits);
    case ScalarKind::kBool:
      return PyBool_FromLong(bits != 0);
    case ScalarKind::kFloat16:
      return PyFloat_FromDouble(PyFloat_Unpack2(reinterpret_cast<const char*>(&bits), 1));
    case ScalarKind::kFloat32:
      return PyFloat_FromDouble(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case ScalarKind::kFloat64:
      return PyFloat_FromDouble(std::bit_cast<double>(bits));
    case ScalarKind::kSigned:
      break;
  }
  return PyLong_FromLongLong(static_cast<long long>(bits));
}

}  // namespace pto::core
