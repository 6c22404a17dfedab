// An engine executes the steps of a run. The Pool uses several threads. The Stepper steps all
// agents (schedulers, cores, orchestrator) one at a time, in an order that a seed determines.
#pragma once

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

}  // namespace pto::sim
