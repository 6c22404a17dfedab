#include "driver/source_places.hpp"
#include "text.hpp"

namespace pto::hierarchy {

SourcePlaces::SourcePlaces()
    : own_folder_(nb::cast<std::string>(nb::module_::import_("os.path").attr("dirname")(
                      nb::module_::import_("pto_core").attr("__file__"))) +
                  "/") {}

nb::object SourcePlaces::file_and_line(const Place& place) const {
  if (place.code == 0 || place.code >= codes_.size()) return nb::make_tuple(nb::none(), nb::none());
  const nb::object& code = codes_[place.code];
  auto* raw = reinterpret_cast<PyCodeObject*>(code.ptr());
  return nb::make_tuple(code.attr("co_filename"), PyCode_Addr2Line(raw, place.instruction));
}

Place SourcePlaces::of_caller() {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(reinterpret_cast<PyObject*>(frame));
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const uint32_t number = code_number(reinterpret_cast<PyObject*>(code));
    Py_DECREF(reinterpret_cast<PyObject*>(code));
    PyFrameObject* const inner = frame;
    const Place place{number, PyFrame_GetLasti(frame)};
    if (number == 0) frame = PyFrame_GetBack(inner);
    Py_DECREF(reinterpret_cast<PyObject*>(inner));
    if (number != 0) return place;
  }
  return {};
}

uint32_t SourcePlaces::code_number(PyObject* code) {
  if (code == last_code_) return last_code_number_;
  const auto [found, is_new] = code_numbers_.try_emplace(code, 0);
  if (is_new) {
    const auto file = nb::cast<std::string>(nb::handle(code).attr("co_filename"));
    if (file.starts_with(own_folder_)) {
      own_codes_.push_back(nb::borrow(code));
    } else {
      found->second = static_cast<uint32_t>(codes_.size());
      codes_.push_back(nb::borrow(code));
    }
  }
  last_code_ = code;
  last_code_number_ = found->second;
  return found->second;
}

}  // namespace pto::hierarchy
