#include "processes/child_signals.hpp"

#include <signal.h>

#include <cstring>

namespace pto::hierarchy {
namespace {

bool is_of_a_crash(int number) {
  switch (number) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGABRT:
    case SIGTRAP:
    case SIGSYS:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string block_signals() {
  sigset_t all;
  sigset_t saved;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &saved);
  return {reinterpret_cast<const char*>(&saved), sizeof saved};
}

void restore_signals(const std::string& saved) {
  sigset_t mask;
  if (saved.size() != sizeof mask) return;
  std::memcpy(&mask, saved.data(), sizeof mask);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void reset_signals() {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction action{};
    if (is_of_a_crash(number) || sigaction(number, nullptr, &action) != 0) continue;
    if (!(action.sa_flags & SA_SIGINFO) &&
        (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
      continue;
    }
    action = {};
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
  }
}

}  // namespace pto::hierarchy
