#include "caller.hpp"

#include <nanobind/nanobind.h>

namespace pto::core {

namespace nb = nanobind;

Place place_of_caller() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return {};
  nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  nb::object file = nb::steal(PyObject_GetAttrString(code.ptr(), "co_filename"));
  const char* text = file.is_valid() ? PyUnicode_AsUTF8(file.ptr()) : nullptr;
  if (!text) PyErr_Clear();
  return {text ? text : "", PyFrame_GetLineNumber(frame)};
}

}  // namespace pto::core
