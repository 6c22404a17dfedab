// An engine executes the steps of a run. The Pool uses several threads. The Stepper steps all
// agents (schedulers, cores, orchestrator) one at a time, in an order that a seed determines.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cstdint>

#include "pto/abi/backend.h"

namespace pto::sim {

class Engine {
 public:
  virtual ~Engine() = default;

  // Called by the device after it has prepared the run. The engine drives the run until its phase
  // is `over`.
  virtual void start(bool with_library) = 0;
  virtual void orchestration_done(int32_t result) = 0;
  // Waits for the end of the run. Returns whether the run is over.
  virtual bool wait(int64_t timeout_ns) = 0;
  // Notifies the engine that the run was ended from outside. Any thread may call it.
  virtual void ended() = 0;
  // Abandons threads that are inside kernels. The run is over at once, and no further kernel may
  // start. Any thread may call it.
  virtual void abandon() = 0;
  // Whether an abandoned thread may still be inside a kernel or an orchestration.
  virtual bool stuck() const = 0;
  // Called after abandon() if stuck() is true. Detaches the threads. They and this object then live
  // until the process ends.
  virtual void detach_threads() = 0;

  // The functions behind the platform table.
  virtual void wake(uint32_t thread) = 0;
  virtual void wait_for_word(const uint32_t* word, uint32_t expected) = 0;
  virtual void notify() = 0;
  virtual void yield(uint32_t point) = 0;
  virtual void order(uint32_t event, uint64_t a, uint64_t b) = 0;
  virtual uint64_t trace_hash() const = 0;
};

// Keeps signals of the process, such as SIGINT, away from the threads of a device.
//
// While this object lives, all signals except faults are blocked on the calling thread. Threads
// that it starts inherit the mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace pto::sim
