#include "interrupts.hpp"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace pto::core::interrupts {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kCount = 3;

// Only the main thread uses the following data, except the members that the signal handler note()
// writes.
int depth = 0;
struct sigaction actions[kCount];
bool is_replaced[kCount];
volatile sig_atomic_t is_noted[kCount];
volatile sig_atomic_t first = 0;
volatile sig_atomic_t event = -1;

bool is_main_thread() {
  return syscall(SYS_gettid) == getpid();
}

void note(int number) {
  const int before = errno;
  for (int i = 0; i < kCount; ++i)
    if (kSignals[i] == number) is_noted[i] = 1;
  if (first == 0) first = number;
  const uint64_t one = 1;
  if (event >= 0 && write(event, &one, sizeof(one)) < 0) errno = 0;
  errno = before;
}

void replace_actions() {
  for (int i = 0; i < kCount; ++i) {
    sigaction(kSignals[i], nullptr, &actions[i]);
    is_replaced[i] = actions[i].sa_handler != SIG_DFL && actions[i].sa_handler != SIG_IGN;
    if (!is_replaced[i]) continue;
    struct sigaction noting = actions[i];
    noting.sa_flags &= ~SA_SIGINFO;
    noting.sa_handler = &note;
    sigaction(kSignals[i], &noting, nullptr);
  }
}

void restore_actions() {
  for (int i = 0; i < kCount; ++i)
    if (is_replaced[i]) sigaction(kSignals[i], &actions[i], nullptr);
  if (event >= 0) close(event);
  event = -1;
  first = 0;
}

void forget_in_fork() {
  if (depth == 0) return;
  restore_actions();
  depth = 0;
  for (auto& each : is_noted) each = 0;
}

}  // namespace

void prepare() {
  pthread_atfork(nullptr, nullptr, &forget_in_fork);
}

bool hold() {
  if (!is_main_thread()) return false;
  if (++depth > 1) return true;
  replace_actions();
  if (PyErr_CheckSignals() == 0) return true;
  release();
  throw nanobind::python_error();
}

void release() noexcept {
  if (depth == 0 || --depth > 0) return;  // depth is 0 in a process that was forked after hold()
  restore_actions();
  for (int i = 0; i < kCount; ++i) {
    if (!is_noted[i]) continue;
    is_noted[i] = 0;
    raise(kSignals[i]);
  }
}

int noted() {
  return first;
}

int descriptor() {
  if (event < 0) event = eventfd(first != 0 ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
  return event;
}

}  // namespace pto::core::interrupts
