// One line on standard error when a kernel or a C++ orchestration crashes the process, unless a
// parent that reads the activity page says it.
//
// The handler is installed once per process, in front of whatever was there; it prints only if the
// thread that faulted was running one of them, and then hands the signal on. It uses nothing that
// is not async-signal-safe.
#pragma once

#include <cstdint>

#include "pto/abi/activity.h"

namespace pto::sim {

// What a thread that runs kernels tells the handler. It outlives the thread's registration.
struct CrashNote {
  const pto_activity_page* page = nullptr;
  pto_activity_slot* slot = nullptr;  // of the page
  int32_t device = 0;
  const uint32_t* blocks = nullptr;  // of the run: cores below it are AIC
  bool is_silent = false;            // whoever reads the activity page reports the crash
};

void install_crash_handler();

// For the calling thread; null takes it back.
void set_crash_note(const CrashNote* note) noexcept;
const CrashNote* crash_note() noexcept;

// Lets the handler run when the stack of the calling thread is exhausted. Undone by destruction,
// on the same thread. A thread that has an alternate stack already keeps it.
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
