// Writes one line to standard error when a kernel or a C++ orchestration crashes the process,
// unless a parent process that reads the activity page reports the crash.
//
// When the handler returns, a fault occurs again in its original context, now without this handler.
// A signal that a process sent (si_code <= 0) does not occur again, so the handler sends it again.
#pragma once

#include <cstdint>

#include "pto/abi/activity.h"

namespace pto::sim {

// The data that the handler reads about a thread that runs kernels. The object must live longer
// than its registration with set_crash_note().
struct CrashNote {
  const pto_activity_page* page = nullptr;
  pto_activity_slot* slot = nullptr;  // the slot of this thread in the activity page
  int32_t device = 0;
  // the number of blocks of the run: the cores with a lower number are AIC cores
  const uint32_t* blocks = nullptr;
  bool is_silent = false;  // whether another process reads the activity page and reports the crash
};

void install_crash_handler();

// Sets the note that the handler reads if the calling thread crashes. Null removes the note.
void set_crash_note(const CrashNote* note) noexcept;
const CrashNote* crash_note() noexcept;

// An alternate signal stack, with which the handler can run when the stack of the calling thread is
// exhausted. Destroy it on the thread that created it. A thread that already has an alternate stack
// keeps its own.
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
