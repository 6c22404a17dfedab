// The Python module pto_core._interrupts. It does not need NumPy, because the parent process of
// `pto run` imports it.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "interrupts.hpp"

namespace nb = nanobind;
namespace interrupts = pto::core::interrupts;

namespace {

// A context manager that holds interrupts while its block runs.
struct Interrupts {
  bool holds = false;
};

int descriptor(const Interrupts& self) {
  const int found = self.holds ? interrupts::descriptor() : -1;
  if (found >= 0 || !self.holds) return found;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

}  // namespace

NB_MODULE(_interrupts, module) {
  module.doc() = "The native half of pto_core.interrupts; not a public interface.";
  interrupts::prepare();
  nb::class_<Interrupts>(
      module, "Interrupts",
      "Within the context a SIGINT, SIGTERM or SIGHUP is only recorded.\n\n"
      "At the end of the context the handler of the signal runs: for SIGINT it raises "
      "KeyboardInterrupt. Signals that are ignored, or that end the process, "
      "are not affected. Outside the main thread the context has no effect.")
      .def(nb::init<>())
      .def(
          "__enter__",
          [](nb::handle_t<Interrupts> self) {
            nb::inst_ptr<Interrupts>(self)->holds = interrupts::hold();
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> Interrupts"))
      .def(
          "__exit__",
          [](Interrupts& self, nb::args) {
            if (std::exchange(self.holds, false)) interrupts::release();
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
          },
          nb::sig("def __exit__(self, *raised: object) -> None"))
      .def_prop_ro(
          "signal",
          [](const Interrupts& self) {
            const int noted = self.holds ? interrupts::noted() : 0;
            return noted == 0 ? std::nullopt : std::optional<int>(noted);
          },
          "The first recorded signal; None if there was none.")
      .def_prop_ro(
          "descriptor", &descriptor,
          "A descriptor that becomes readable at the first signal; -1 outside the main thread.");
}
