#include "driver/held_signals.hpp"

#include <csignal>
#include <cstdint>
#include <utility>
#include <vector>

#include "endpoint/interruption.hpp"

namespace pto::hierarchy {
namespace {

namespace nb = nanobind;

constexpr int kNumbers = 32;  // the standard signals lie below

// Of the main thread.
bool is_holding = false;
uint32_t noted = 0;  // a bit a number
std::vector<std::pair<int, nb::object>> replaced;

// The functions in C: those of the module `signal` are Python, where handlers run. Never freed.
struct Functions {
  PyObject *signal, *getsignal, *note;
};

const Functions& functions() {
  static const Functions found = [] {
    const nb::module_ module = nb::module_::import_("_signal");
    const nb::object note = nb::cpp_function([](int number, nb::handle) { noted |= 1u << number; });
    return Functions{nb::object(module.attr("signal")).release().ptr(),
                     nb::object(module.attr("getsignal")).release().ptr(),
                     nb::object(note).release().ptr()};
  }();
  return found;
}

bool is_main_thread() {
  static const auto main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  return PyThread_get_thread_ident() == main_thread;
}

// It runs the handlers of what has come before, and changes nothing where one raises.
void set_handler(int number, nb::handle handler) {
  while (true) {
    const nb::object done = nb::steal(PyObject_CallFunctionObjArgs(
        functions().signal, nb::int_(number).ptr(), handler.ptr(), nullptr));
    if (done.is_valid()) return;
    keep_interruption();
  }
}

void hold() {
  is_holding = true;
  for (int number = 1; number < kNumbers; ++number) {
    const nb::object handler =
        nb::steal(PyObject_CallOneArg(functions().getsignal, nb::int_(number).ptr()));
    if (!handler.is_valid()) PyErr_Clear();
    if (!handler.is_valid() || !PyCallable_Check(handler.ptr())) continue;
    replaced.emplace_back(number, handler);
    set_handler(number, functions().note);
  }
}

void let_in() {
  is_holding = false;
  for (const auto& [number, handler] : std::exchange(replaced, {})) set_handler(number, handler);
  for (int number = 1; noted != 0; ++number, noted >>= 1) {
    if (noted & 2) PyErr_SetInterruptEx(number);
  }
}

}  // namespace

void HeldSignals::prepare() {
  functions();
  is_main_thread();
}

HeldSignals::HeldSignals() {
  if (is_holding || !is_main_thread()) return;
  holds_ = true;
  hold();
}

HeldSignals::~HeldSignals() {
  if (holds_) let_in();
}

nb::object call_with_signals(const nb::object& function, const nb::args& args) {
  if (!is_holding || !is_main_thread()) return function(*args);
  struct LetIn {
    LetIn() { let_in(); }
    ~LetIn() { hold(); }
  };
  const LetIn here;
  nb::object result = function(*args);
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  return result;
}

}  // namespace pto::hierarchy
