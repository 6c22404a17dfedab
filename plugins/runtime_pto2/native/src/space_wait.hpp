// The wait of the orchestrator for free space, and a description of the wait for other threads.
//
// The orchestrator waits in the platform's wait(). The wait ends when space has been freed, when
// the run fails, or when the backend has called stalled() and no task can free space.
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

  // Called by the orchestrator: wait until `has_space` returns true. A thread that tries to prove a
  // deadlock also calls `has_space`. Return false if the run has failed or a deadlock has been
  // proven.
  template <class HasSpace>
  bool wait_until(const Blocked& blocked, HasSpace has_space) {
    blocked_ = blocked;
    return wait([](void* context) { return (*static_cast<HasSpace*>(context))(); }, &has_space);
  }
  // Return whether the backend is trying to prove a deadlock: no other thread runs, and no task can
  // complete. Called inside `has_space`.
  bool is_stalled() const { return is_stalled_; }

  // Return whether the orchestrator waits for space. Called by stalled(), while no other thread
  // runs and the orchestrator is inside wait().
  bool is_blocked() const { return blocked_.what != Resource::kNone; }
  // Call `has_space` once more before a deadlock is declared, and return its result. If it is true,
  // the caller must call wake().
  bool can_continue();
  void wake() { run_.rings.wake_orchestrator(run_.context.platform); }
  Proof proof() const;

  // Log the current wait once for each interval that it lasts. Any thread may call this.
  void log_long_wait();
  const LongWait& long_wait() const { return long_wait_; }

 private:
  bool wait(bool (*has_space)(void*), void* context);
  void update_long_wait();

  RunState& run_;
  Blocked blocked_;
  LongWait long_wait_;  // a copy of the same data for other threads
  bool (*has_space_)(void*) = nullptr;
  void* has_space_context_ = nullptr;
  bool is_stalled_ = false;
  // can_continue() has already called has_space() with success. It must not be called again,
  // because it reserves the space.
  bool has_reserved_ = false;
};

}  // namespace pto::ring_buffer
