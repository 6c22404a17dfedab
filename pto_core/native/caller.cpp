#include "caller.hpp"

#include <cstdint>

#include "text.hpp"

namespace pto::core {

Place Callers::here() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return {};
  nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const int instruction = PyFrame_GetLasti(frame);
  const auto address = reinterpret_cast<uintptr_t>(code.ptr());
  // A hash of code object and instruction, which drops bits that rarely differ: code objects are at
  // least 64 bytes apart, and each instruction has two bytes.
  Known& known = known_[((address >> 6) ^ static_cast<uintptr_t>(instruction >> 1)) % kRemembered];
  if (known.code.is(code) && known.instruction == instruction) return known.place;
  known.place = look_up(frame, code);
  known.instruction = instruction;
  known.code = std::move(code);
  return known.place;
}

Place Callers::look_up(PyFrameObject* frame, nb::handle code) {
  const nb::object file = nb::steal(PyObject_GetAttrString(code.ptr(), "co_filename"));
  std::string name;
  if (!file.is_valid() || !encode(file.ptr(), &name)) PyErr_Clear();
  return {files_.insert(name).first->c_str(), PyFrame_GetLineNumber(frame)};
}

}  // namespace pto::core
