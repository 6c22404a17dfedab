// The wait of the orchestrator for free space, and a description of the wait for other threads.
//
// The orchestrator waits in the platform's wait(). The wait ends when space has been freed, when
// the run fails, or when the backend has called stalled() and no task can free space.
#pragma once

#include <atomic>
#include <cstdint>

#include "blocked.hpp"
#include "deadlock.hpp"
#include "run_state.hpp"

namespace pto::ring_buffer {

// A description of the current wait of the orchestrator, for reports that other threads make.
//
// The orchestrator writes the description; any thread may read it. The lock is held only while a
// thread copies the data.
class LongWait {
 public:
  struct Picture {
    Blocked blocked;
    uint64_t used = 0;       // used amount of the resource
    int64_t current = 0;     // number of the ring's next task
    int64_t last_alive = 0;  // number of its oldest task that has not retired
  };

  // Start a wait, or update the data of the current wait.
  void enter(const Picture& picture) {
    const Guard guard(lock_);
    if (picture_.blocked.what == Resource::kNone) reported_ns_ = picture.blocked.since_ns;
    picture_ = picture;
  }

  void leave() {
    const Guard guard(lock_);
    picture_.blocked.what = Resource::kNone;
  }

  // Return a copy of the description. Its `blocked.what` is kNone if the orchestrator does not
  // wait.
  Picture look() const {
    const Guard guard(lock_);
    return picture_;
  }

  // Return whether the caller should report the wait, and copy the description. Returns true only
  // once for each kLongWaitNs that the wait lasts.
  bool is_due(uint64_t now_ns, Picture* picture) {
    const Guard guard(lock_);
    if (picture_.blocked.what == Resource::kNone || now_ns < reported_ns_ + kLongWaitNs)
      return false;
    reported_ns_ = now_ns;
    *picture = picture_;
    return true;
  }

 private:
  static constexpr uint64_t kLongWaitNs = 100'000'000;

  class Guard {
   public:
    explicit Guard(std::atomic<uint32_t>& lock) : lock_(lock) {
      while (lock_.exchange(1, std::memory_order_acquire) != 0) {
      }
    }
    ~Guard() { lock_.store(0, std::memory_order_release); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    std::atomic<uint32_t>& lock_;
  };

  mutable std::atomic<uint32_t> lock_{0};
  Picture picture_;
  uint64_t reported_ns_ = 0;
};

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
