#include "driver/held_signals.hpp"

#include <pthread.h>
#include <signal.h>

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
  PyObject *signal, *getsignal, *set_wakeup_fd, *note;
};

const Functions& functions() {
  static const Functions found = [] {
    const nb::module_ module = nb::module_::import_("_signal");
    const nb::object note = nb::cpp_function([](int number, nb::handle) { noted |= 1u << number; });
    return Functions{nb::object(module.attr("signal")).release().ptr(),
                     nb::object(module.attr("getsignal")).release().ptr(),
                     nb::object(module.attr("set_wakeup_fd")).release().ptr(),
                     nb::object(note).release().ptr()};
  }();
  return found;
}

unsigned long main_thread = 0;

// The thread that forks is the main thread of the process that it makes. That may be another one
// than holds signals back, see release_forked().
void note_fork() {
  main_thread = PyThread_get_thread_ident();
}

bool is_main_thread() {
  return PyThread_get_thread_ident() == main_thread;
}

// Changes what Python does at a signal; what the system does, such as going on with its calls,
// stays. It runs the handlers of what has come before, and changes nothing where one raises.
void set_handler(int number, nb::handle handler) {
  struct sigaction course;
  sigaction(number, nullptr, &course);
  while (true) {
    const nb::object done = nb::steal(PyObject_CallFunctionObjArgs(
        functions().signal, nb::int_(number).ptr(), handler.ptr(), nullptr));
    if (done.is_valid()) break;
    keep_interruption();
  }
  sigaction(number, &course, nullptr);
}

// A child lets the system end it where Python has the handlers of its parent still.
bool reaches_python(int number) {
  struct sigaction course;
  return sigaction(number, nullptr, &course) == 0 && course.sa_handler != SIG_DFL &&
         course.sa_handler != SIG_IGN;
}

void hold() {
  is_holding = true;
  for (int number = 1; number < kNumbers; ++number) {
    if (!reaches_python(number)) continue;
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
  while (!replaced.empty()) {
    const auto [number, handler] = std::move(replaced.back());
    replaced.pop_back();
    set_handler(number, handler);
  }
}

// In a forked process whose parent held signals back, in a thread that is not here.
void release_forked() {
  noted = 0;
  let_in();
}

nb::object set_wakeup_fd(const nb::object& descriptor) {
  nb::object before = nb::steal(PyObject_CallOneArg(functions().set_wakeup_fd, descriptor.ptr()));
  if (!before.is_valid()) keep_interruption();
  return before;
}

// As if the signals came now, but for the descriptor that was told of them when they did.
void send_noted() {
  if (noted == 0) return;
  const nb::object descriptor = set_wakeup_fd(nb::int_(-1));
  for (int number = 1; number < kNumbers; ++number) {
    if (noted >> number & 1) PyErr_SetInterruptEx(number);
  }
  noted = 0;
  if (descriptor.is_valid()) set_wakeup_fd(descriptor);
}

}  // namespace

void HeldSignals::prepare() {
  functions();
  main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  pthread_atfork(nullptr, nullptr, &note_fork);
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") =
                                                          nb::cpp_function(&release_forked));
}

HeldSignals::HeldSignals() {
  if (is_holding || !is_main_thread()) return;
  holds_ = true;
  hold();
}

HeldSignals::~HeldSignals() {
  if (!holds_) return;
  let_in();
  send_noted();
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
