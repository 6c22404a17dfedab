// Who drives a run: a pool of threads, or one thread that steps all agents in a seeded order.
#pragma once

#include <cstdint>

#include "pto/abi/backend.h"

namespace pto::sim {

class Engine {
 public:
  virtual ~Engine() = default;

  // The device's calls. The run is prepared; it ends in phase over.
  virtual void start(bool with_library) = 0;
  virtual void orchestration_done(int32_t result) = 0;
  // True once the run is over.
  virtual bool wait(int64_t timeout_ns) = 0;
  // The run was ended from outside. Any thread.
  virtual void ended() = 0;
  // Gives up on threads that are inside kernels. The run is over at once; nothing else may start.
  // Any thread.
  virtual void abandon() = 0;
  // Whether a thread that was given up may still be inside a kernel or an orchestration.
  virtual bool stuck() const = 0;
  // After abandon(), when stuck: nobody will wait for the threads; they and this object stay.
  virtual void let_go() = 0;

  // The platform table's calls.
  virtual void wake(uint32_t thread) = 0;
  virtual void wait_for_word(const uint32_t* word, uint32_t expected) = 0;
  virtual void notify() = 0;
  virtual void yield(uint32_t point) = 0;
  virtual void trace(uint32_t event, uint64_t a, uint64_t b) = 0;
  virtual uint64_t trace_hash() const = 0;
};

}  // namespace pto::sim
