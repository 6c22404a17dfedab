// Deterministic interleavings: a test runs an action between two machine instructions of a call.
//
// The call runs with the processor's trap flag set. The trap handler counts instructions and, at
// the instruction that the test names, runs the action on the same thread. The effect is the same
// as if another thread had run the whole action while this one stood still. So the action must not
// wait for the call, and neither may hold a lock of the C library. For x86-64, without sanitizers.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>

#include "check.hpp"

#if defined(__x86_64__)
#include <ucontext.h>
#endif

namespace interleaving {

struct Plan {
  uint64_t left = 0;  // instructions before the action; 0: the action has run
  std::function<void()> action;
};

inline Plan& plan() {
  static Plan the_plan;
  return the_plan;
}

#if defined(__x86_64__)

constexpr uint64_t kTrapFlag = 0x100;

inline void on_trap(int, siginfo_t*, void* context) {
  if (--plan().left > 0) return;
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(kTrapFlag);
  plan().action();
}

// Run `call`, and run `action` before its instruction number `at` (from 1). Return false if the
// call ended before that; then the action has not run.
template <class Call>
bool run_with(uint64_t at, std::function<void()> action, Call&& call) {
  struct sigaction handler = {};
  handler.sa_sigaction = on_trap;
  handler.sa_flags = SA_SIGINFO;
  struct sigaction before = {};
  CHECK_EQUAL(sigaction(SIGTRAP, &handler, &before), 0);
  plan() = {at, std::move(action)};
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | kTrapFlag);
  call();
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~kTrapFlag);
  CHECK_EQUAL(sigaction(SIGTRAP, &before, nullptr), 0);
  return plan().left == 0;
}

#else

template <class Call>
bool run_with(uint64_t, std::function<void()>, Call&&) {
  check::fail(__FILE__, __LINE__, "single steps need an x86-64 processor");
}

#endif

}  // namespace interleaving
