#include "child/answers.hpp"

#include <nanobind/nanobind.h>

#include "gil.hpp"

namespace pto::hierarchy {

void run_signal_handlers() {
  try {
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  } catch (nanobind::python_error& error) {
    if (!error.matches(PyExc_KeyboardInterrupt)) throw;
  }
}

void Answers::send(const pto_answer& answer) {
  bool is_given = end_.try_answer(answer);
  while (!is_given) {
    {
      const core::ReleasedGil released;
      is_given = end_.wait_to_answer(answer);
    }
    run_signal_handlers();
  }
}

}  // namespace pto::hierarchy
