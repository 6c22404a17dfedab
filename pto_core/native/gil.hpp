// Giving up the GIL and taking it back, also while the interpreter ends.
//
// Before Python 3.14 a thread that asks for the GIL of an ending interpreter is unwound with
// pthread_exit, through destructors that use Python objects without the GIL. Such a thread is
// parked instead, until the process is gone.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace pto::core {

inline bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// Calls what may take the GIL; a thread that never gets it stays inside for good.
template <class Call>
auto or_park(Call call) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    while (true) pause();
  }
}

// Without the GIL as long as this lives.
class ReleasedGil {
 public:
  ReleasedGil() : saved_(PyEval_SaveThread()) {}
  ~ReleasedGil() {
    or_park([this] { PyEval_RestoreThread(saved_); });
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* saved_;
};

}  // namespace pto::core
