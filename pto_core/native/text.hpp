// Conversion between Python's str and std::string, instead of <nanobind/stl/string.h>.
//
// Texts can contain file names, whose bytes need not be UTF-8. Python represents such bytes by
// surrogates (the error handler "surrogateescape"), and so do these conversions, in both
// directions.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace pto::core {

namespace nb = nanobind;

// Return false, with an exception set, if `text` has surrogates that represent no bytes.
inline bool encode(PyObject* text, std::string* bytes) {
  Py_ssize_t size = 0;
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size)) {
    bytes->assign(utf8, static_cast<size_t>(size));
    return true;
  }
  PyErr_Clear();
  PyObject* encoded = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
  if (!encoded) return false;
  bytes->assign(PyBytes_AS_STRING(encoded), static_cast<size_t>(PyBytes_GET_SIZE(encoded)));
  Py_DECREF(encoded);
  return true;
}

inline PyObject* decode(std::string_view bytes) {
  return PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                              "surrogateescape");
}

}  // namespace pto::core

namespace nanobind::detail {

template <>
struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    if (!PyUnicode_Check(source.ptr())) return false;
    if (pto::core::encode(source.ptr(), &value)) return true;
    PyErr_Clear();
    return false;
  }
  static handle from_cpp(const std::string& text, rv_policy, cleanup_list*) noexcept {
    return pto::core::decode(text);
  }
};

}  // namespace nanobind::detail
