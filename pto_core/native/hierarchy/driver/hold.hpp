// The task submitted last, held back while the thread that submitted it may still say what else it
// waits for.
//
// It is held until that thread submits or waits, somebody waits for the task, or nobody has its
// handle; and no longer than until the thread has slept or computed for 20 ms instead, from when
// another thread that drives meets the hold. A thread that waits for a core all that time could not
// have said anything: the hold goes on.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace pto::hierarchy {

class Hold {
 public:
  static constexpr uint64_t kNotHeld = UINT64_MAX;

  // The calling thread has submitted the task. One thread at a time.
  void begin(int64_t task);
  // That task is held no longer; any thread.
  void let_go(int64_t task);
  void let_go();
  // How long the calling thread, which drives, has to leave the task; kNotHeld: it may be sent. Any
  // thread; the thread's own drive lets it go, and so does a time that is over.
  uint64_t left_ns();

 private:
  uint64_t look_ns(int64_t task);

  std::atomic<int64_t> task_{-1};  // -1: none
  std::atomic<pid_t> thread_{0};   // that submitted it

  // Of those that look at a task of another thread.
  std::mutex mutex_;
  int64_t seen_ = -1;  // the task that was seen last; since when, and what its thread had used then
  uint64_t since_ns_ = 0;
  uint64_t used_ns_ = 0;
};

}  // namespace pto::hierarchy
