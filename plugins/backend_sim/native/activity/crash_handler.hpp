// Writes one line to standard error when a kernel or a C++ orchestration crashes the process,
// unless a parent process that reads the activity page reports the crash.
//
// The handler is installed once per process, before any existing handler. It prints only if the
// faulting thread was running a kernel or an orchestration, and then passes the signal on to the
// earlier handler. It uses only async-signal-safe functions.
#pragma once

#include <cstdint>

#include "pto/abi/activity.h"

namespace pto::sim {

// The state of a kernel-running thread, as read by the handler. It outlives the thread's
// registration.
struct CrashNote {
  const pto_activity_page* page = nullptr;
  pto_activity_slot* slot = nullptr;  // slot in the activity page
  int32_t device = 0;
  // number of blocks of the run: cores with a lower number are AIC
  const uint32_t* blocks = nullptr;
  bool is_silent = false;  // the process that reads the activity page reports the crash
};

void install_crash_handler();

// Registers the note of the calling thread; null unregisters it.
void set_crash_note(const CrashNote* note) noexcept;
const CrashNote* crash_note() noexcept;

// Provides an alternate signal stack, so that the handler can run when the stack of the calling
// thread is exhausted. The destructor removes it and must run on the same thread. A thread that
// already has an alternate stack keeps its own.
class AlternateStack {
 public:
  AlternateStack();
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;
  ~AlternateStack();

 private:
  void* memory_ = nullptr;
};

}  // namespace pto::sim
