#include "driver/python_host.hpp"

#include <nanobind/stl/string.h>

#include "gil.hpp"

namespace pto::hierarchy {
namespace {

// Of a thread of the program, while it has given the GIL up.
thread_local PyThreadState* saved = nullptr;
// Of the driver's own thread, while it has taken the GIL.
thread_local bool is_borrowed = false;
thread_local PyGILState_STATE borrowed;

}  // namespace

void PythonHost::give_up() {
  if (!is_borrowed) {
    saved = PyEval_SaveThread();
    return;
  }
  is_borrowed = false;
  PyGILState_Release(borrowed);
}

void PythonHost::take() {
  core::or_park([] {
    if (saved) {
      PyEval_RestoreThread(std::exchange(saved, nullptr));
    } else {
      borrowed = PyGILState_Ensure();
      is_borrowed = true;
    }
  });
}

void PythonHost::look(bool is_callers) {
  if (is_callers && PyErr_CheckSignals() != 0) throw nb::python_error();
  hooks_.attr("look")();
}

void PythonHost::end_child(int32_t child, int64_t cause) {
  hooks_.attr("end_child")(child, cause);
}

void PythonHost::child_broken(int32_t child, const std::string& words) {
  hooks_.attr("child_broken")(child, words);
}

uint64_t PythonHost::grant(uint32_t ring, uint64_t bytes) {
  return nb::cast<uint64_t>(hooks_.attr("grant")(ring, bytes));
}

}  // namespace pto::hierarchy
