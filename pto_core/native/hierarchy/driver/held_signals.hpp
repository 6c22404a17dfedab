// Signals that have to wait, because nothing may be raised where their handlers would run.
#pragma once

#include <nanobind/nanobind.h>

namespace pto::hierarchy {

// On the main thread, which runs all handlers: those in Python wait as long as this lives. Then
// they take their course. Inside another one, and on other threads, it does nothing. With the GIL.
class HeldSignals {
 public:
  static void prepare();  // once, when the module is made

  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  bool holds_ = false;
};

// Calls the program's `function` with handlers running again, inside of HeldSignals too; throws
// what they raise.
nanobind::object call_with_signals(const nanobind::object& function, const nanobind::args& args);

}  // namespace pto::hierarchy
