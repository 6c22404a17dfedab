#include "data_types.hpp"

#include <cstring>

#include "errors.hpp"
#include "pto/abi/dtype.h"

namespace pto::core {
namespace {

struct DataType {
  int numpy;  // NumPy type number; -1 for a type of ml_dtypes
  size_t bytes;
  const char* name = nullptr;  // in ml_dtypes
};

constexpr DataType kTypes[PTO_DTYPE_COUNT] = {
    {NPY_FLOAT32, 4},       {NPY_FLOAT16, 2},   {NPY_INT32, 4},       {NPY_INT16, 2},
    {NPY_INT8, 1},          {NPY_UINT8, 1},     {-1, 2, "bfloat16"},  {NPY_INT64, 8},
    {NPY_UINT64, 8},        {NPY_FLOAT64, 8},   {NPY_BOOL, 1},        {NPY_UINT16, 2},
    {NPY_UINT32, 4},        {NPY_COMPLEX64, 8}, {NPY_COMPLEX128, 16}, {-1, 1, "float8_e4m3fn"},
    {-1, 1, "float8_e5m2"},
};

PyArray_Descr* descriptor_named(const char* name) {
  nb::object type = nb::module_::import_("ml_dtypes").attr(name);
  PyArray_Descr* descriptor = nullptr;
  if (!PyArray_DescrConverter(type.ptr(), &descriptor)) throw nb::python_error();
  return descriptor;
}

std::optional<uint8_t> signed_code(size_t bytes) {
  switch (bytes) {
    case 1:
      return PTO_DTYPE_INT8;
    case 2:
      return PTO_DTYPE_INT16;
    case 4:
      return PTO_DTYPE_INT32;
    case 8:
      return PTO_DTYPE_INT64;
    default:
      return std::nullopt;
  }
}

std::optional<uint8_t> unsigned_code(size_t bytes) {
  switch (bytes) {
    case 1:
      return PTO_DTYPE_UINT8;
    case 2:
      return PTO_DTYPE_UINT16;
    case 4:
      return PTO_DTYPE_UINT32;
    case 8:
      return PTO_DTYPE_UINT64;
    default:
      return std::nullopt;
  }
}

std::optional<uint8_t> code_of_kind(char kind, size_t bytes) {
  switch (kind) {
    case 'b':
      return PTO_DTYPE_BOOL;
    case 'i':
      return signed_code(bytes);
    case 'u':
      return unsigned_code(bytes);
    case 'f':
      if (bytes == 2) return PTO_DTYPE_FLOAT16;
      if (bytes == 4) return PTO_DTYPE_FLOAT32;
      if (bytes == 8) return PTO_DTYPE_FLOAT64;
      return std::nullopt;
    case 'c':
      if (bytes == 8) return PTO_DTYPE_COMPLEX64;
      if (bytes == 16) return PTO_DTYPE_COMPLEX128;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

void import_numpy() {
  if (import_numpy_table() != 0) throw nb::python_error();
}

PyArray_Descr* descriptor_of(uint8_t code) {
  static PyArray_Descr* descriptors[PTO_DTYPE_COUNT] = {};
  if (!descriptors[code]) {
    const DataType& type = kTypes[code];
    descriptors[code] = type.name ? descriptor_named(type.name) : PyArray_DescrFromType(type.numpy);
  }
  return descriptors[code];
}

size_t element_bytes(uint8_t code) {
  return kTypes[code].bytes;
}

std::optional<uint8_t> code_of(PyArray_Descr* descriptor) {
  if (!PyArray_ISNBO(descriptor->byteorder)) return std::nullopt;
  if (auto code = code_of_kind(descriptor->kind, PyDataType_ELSIZE(descriptor))) return code;
  // ml_dtypes registers its types with NumPy under separate numbers, with kind 'V' or 'f'.
  for (uint8_t code = 0; code < PTO_DTYPE_COUNT; ++code) {
    const char* name = kTypes[code].name;
    const bool may_be = name && std::strstr(descriptor->typeobj->tp_name, name) != nullptr;
    if (may_be && descriptor->typeobj == descriptor_of(code)->typeobj) return code;
  }
  return std::nullopt;
}

std::optional<uint8_t> code_of_format(const char* format, size_t item_bytes) {
  if (!format) return PTO_DTYPE_UINT8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (*format == 'Z' && format[1] && !format[2]) return code_of_kind('c', item_bytes);
  if (!*format || format[1]) return std::nullopt;
  if (*format == '?') return PTO_DTYPE_BOOL;
  if (std::strchr("bhilqn", *format)) return signed_code(item_bytes);
  if (std::strchr("cBHILQNP", *format)) return unsigned_code(item_bytes);
  if (std::strchr("efd", *format)) return code_of_kind('f', item_bytes);
  return std::nullopt;
}

uint8_t code_of_object(nb::handle dtype) {
  PyArray_Descr* descriptor = nullptr;
  if (!PyArray_DescrConverter(dtype.ptr(), &descriptor)) {
    take_exception();
    raise_usage(shown(dtype) + " is not a data type; pass one such as numpy.float32");
  }
  nb::object keep = nb::steal(reinterpret_cast<PyObject*>(descriptor));
  auto code = code_of(descriptor);
  if (!code) {
    raise_usage("data type " + shown(keep) + " is not supported on a device; " +
                (PyArray_ISNBO(descriptor->byteorder)
                     ? kSupported
                     : "its byte order is not that of this machine; use dtype.newbyteorder('=')"));
  }
  return *code;
}

}  // namespace pto::core
