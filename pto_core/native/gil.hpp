// Release and acquire the GIL, even during interpreter shutdown.
//
// Before Python 3.14, a thread that requests the GIL during shutdown is ended with pthread_exit.
// Its destructors would then use Python objects without the GIL. So this module blocks such a
// thread until the process exits.
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

// Call a function that may acquire the GIL. If CPython would end this thread because of interpreter
// shutdown, block it forever instead.
template <class Call>
auto or_park(Call call) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    while (true) pause();
  }
}

// Releases the GIL while this object lives.
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
