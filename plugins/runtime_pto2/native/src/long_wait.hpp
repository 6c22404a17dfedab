// A description of the current wait of the orchestrator, for reports that other threads make.
//
// The orchestrator writes the description; any thread may read it. The lock is held only while a
// thread copies the data.
#pragma once

#include <atomic>
#include <cstdint>

#include "blocked.hpp"

namespace pto::ring_buffer {

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

}  // namespace pto::ring_buffer
