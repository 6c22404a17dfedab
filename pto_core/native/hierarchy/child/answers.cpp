#include "child/answers.hpp"

#include <nanobind/nanobind.h>

#include "gil.hpp"

namespace pto::hierarchy {

void look_for_signals() {
  if (PyErr_CheckSignals() == 0) return;
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw nanobind::python_error();
  PyErr_Clear();
}

void Answers::give(const pto_answer& answer) {
  bool is_given = end_.try_answer(answer);
  while (!is_given) {
    {
      const core::ReleasedGil released;
      is_given = end_.wait_to_answer(answer);
    }
    look_for_signals();
  }
}

}  // namespace pto::hierarchy
