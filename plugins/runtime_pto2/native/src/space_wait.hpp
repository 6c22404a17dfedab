// The orchestrator's wait for free space, and its description for other threads.
//
// The wait is in the platform's wait(). It ends when free space has come back, when the run fails,
// or when the backend has proven by stalled() that nothing can free any.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "deadlock.hpp"
#include "long_wait.hpp"
#include "run_state.hpp"

namespace pto::ring_buffer {

class SpaceWait {
 public:
  explicit SpaceWait(RunState& run) : run_(run) {}

  void begin() { blocked_ = {}; }

  // Orchestrator. Waits until `has_space` returns true; it is also called by the thread that proves
  // deadlocks. False: the run has failed, or a deadlock has been proven.
  template <class HasSpace>
  bool wait_until(const Blocked& blocked, HasSpace has_space) {
    blocked_ = blocked;
    return wait([](void* context) { return (*static_cast<HasSpace*>(context))(); }, &has_space);
  }
  // Orchestrator, in `has_space`: no other thread runs, and no task can complete.
  bool is_stalled() const { return is_stalled_; }

  // stalled(): no other thread runs, and the orchestrator is in wait().
  bool is_blocked() const { return blocked_.what != Resource::kNone; }
  // Whether there is free space after all; then the caller calls wake().
  bool can_continue();
  void wake() { run_.rings.wake_orchestrator(run_.context.platform); }
  Proof proof() const;

  // Any thread: logs the present wait, once for each interval that it lasts.
  void log_long_wait();
  const LongWait& long_wait() const { return long_wait_; }

 private:
  bool wait(bool (*has_space)(void*), void* context);
  void update_long_wait();

  RunState& run_;
  Blocked blocked_;
  LongWait long_wait_;  // a copy of the same for other threads
  bool (*has_space_)(void*) = nullptr;
  void* has_space_context_ = nullptr;
  bool is_stalled_ = false;
  // can_continue() called has_space() with success. Do not call it again: it reserves the space.
  bool has_reserved_ = false;
};

}  // namespace pto::ring_buffer
