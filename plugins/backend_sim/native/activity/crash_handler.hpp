// Writes one line to standard error when a kernel or a C++ orchestration crashes the process,
// unless a parent process that reads the activity page reports the crash.
//
// A fault occurs again, with its original context, when the handler returns. A signal that a
// process sent (si_code <= 0) does not, so send it again.
#pragma once

#include <cstdint>

#include "pto/abi/activity.h"

namespace pto::sim {

// The state of a kernel-running thread, as read by the handler. It outlives the thread's
// registration.
struct CrashNote {
  const pto_activity_page* page = nullptr;
  pto_activity_slot* slot = nullptr;  // the slot of this thread in the activity page
  int32_t device = 0;
  // number of blocks of the run; cores with a lower number are AIC cores
  const uint32_t* blocks = nullptr;
  bool is_silent = false;  // whether another process reads the activity page and reports the crash
};

void install_crash_handler();

// Sets the note that the handler reads if the calling thread crashes. Null removes the note.
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
