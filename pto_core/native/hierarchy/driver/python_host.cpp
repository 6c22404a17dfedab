#include "driver/python_host.hpp"

#include <utility>

#include "gil.hpp"
#include "text.hpp"

namespace pto::hierarchy {
namespace {

// The Python thread state of a thread that has released the GIL.
thread_local PyThreadState* saved = nullptr;
// Whether the driver's own thread has a Python thread state: from its first take() until it ends.
// The thread keeps this state while it waits without the GIL, because the Python frames of a host
// call still need it.
thread_local bool is_entered = false;
thread_local PyGILState_STATE entered;

}  // namespace

void PythonHost::give_up() {
  saved = PyEval_SaveThread();
}

void PythonHost::take() {
  core::or_park([] {
    if (saved) {
      PyEval_RestoreThread(std::exchange(saved, nullptr));
    } else {
      entered = PyGILState_Ensure();
      is_entered = true;
    }
  });
}

// During interpreter shutdown a thread cannot acquire the GIL, and the interpreter frees the thread
// state itself.
void PythonHost::leave() {
  if (!is_entered || core::is_finalizing()) return;
  take();
  is_entered = false;
  PyGILState_Release(entered);
}

void PythonHost::attend(bool is_callers) {
  if (is_callers && PyErr_CheckSignals() != 0) throw nb::python_error();
  hooks_.attr("poll")();
}

void PythonHost::end_child(int32_t child, int64_t cause) {
  hooks_.attr("end_child")(child, cause);
}

void PythonHost::child_broken(int32_t child, const std::string& message) {
  hooks_.attr("child_broken")(child, message);
}

uint64_t PythonHost::grant(uint32_t ring, uint64_t bytes) {
  return nb::cast<uint64_t>(hooks_.attr("grant")(ring, bytes));
}

}  // namespace pto::hierarchy
