#include "errors.hpp"

#include <cstring>
#include <exception>
#include <system_error>

namespace pto::core {

pto_error empty_error() {
  pto_error error;
  std::memset(&error, 0, sizeof(error));
  error.func_id = -1;
  error.task = -1;
  error.other_task = -1;
  error.core = -1;
  error.line = -1;
  return error;
}

pto_error make_error(pto_status status, const std::string& message) {
  pto_error error = empty_error();
  error.status = status;
  std::strncpy(error.message, message.c_str(), sizeof(error.message) - 1);
  return error;
}

void raise_exception(const nb::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

nb::object text_of(const std::string& text) {
  const auto length = static_cast<Py_ssize_t>(text.size());
  nb::object decoded = nb::steal(PyUnicode_DecodeUTF8(text.data(), length, "replace"));
  if (!decoded.is_valid()) throw nb::python_error();
  return decoded;
}

void raise_error(const char* name, const std::string& message, const nb::dict& fields) {
  nb::object type = nb::module_::import_("pto_core.errors").attr(name);
  raise_exception(type(text_of(message), **fields));
}

void raise_usage(const std::string& message) {
  raise_error("UsageError", message);
}

nb::object exception_of(const pto_error& error, const std::string& kernel) {
  nb::object make = nb::module_::import_("pto_core.errors.native").attr("from_status");
  return make(error.status, text_of(error.message), nb::arg("func_id") = error.func_id,
              nb::arg("task") = error.task, nb::arg("other_task") = error.other_task,
              nb::arg("core") = error.core, nb::arg("line") = error.line,
              nb::arg("value") = error.value, nb::arg("limit") = error.limit,
              nb::arg("file") = std::string(error.file), nb::arg("kernel") = kernel,
              nb::arg("vendor_function") = text_of(error.vendor_function),
              nb::arg("vendor_code") = error.vendor_code, nb::arg("code") = error.code);
}

nb::object take_exception() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return nb::steal(value);
}

std::string shown(nb::handle object) {
  PyObject* text = PyObject_Repr(object.ptr());
  const char* characters = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string result = characters ? characters : "<unprintable>";
  if (!characters) PyErr_Clear();
  Py_XDECREF(text);
  constexpr size_t kLongest = 80;
  if (result.size() > kLongest) result = result.substr(0, kLongest - 3) + "...";
  return result;
}

std::string type_text(nb::handle object) {
  return Py_TYPE(object.ptr())->tp_name;
}

void translate_system_errors() {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const std::system_error& failure) {
      try {
        const nb::object known = nb::module_::import_("pto_core.errors.limits");
        raise_exception(known.attr("system_error")(failure.what(), failure.code().value()));
      } catch (nb::python_error& raised) {
        raised.restore();
      }
    }
  });
}

}  // namespace pto::core
