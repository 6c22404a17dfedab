// The interface that a driver needs from its environment: the Python side of a Worker, or a native
// test.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace pto::worker {

// The data of a driver that threads read without the role. Only the thread that has the role writes
// it, unless a comment states otherwise.
struct SharedFlags {
  // number of runs, each from its start until its last task has ended
  std::atomic<uint32_t> open_runs{0};
  std::atomic<bool> is_closed{false};
  // whether the policy or a transport is in Python
  std::atomic<bool> calls_python{false};
  std::atomic<bool> has_work{false};
  // whether tasks may soon have to move to an idle child, so that waits must be short
  std::atomic<bool> is_unbalanced{false};
  std::atomic<uint32_t> timeouts{0};   // number of live tasks that have a deadline
  std::atomic<uint64_t> delays{0};     // number of tasks that wait before their next attempt
  std::atomic<uint32_t> returning{0};  // number of lost children that are being restarted
  // all tasks with smaller numbers have ended; never decreases
  std::atomic<int64_t> oldest_live{0};
  std::atomic<uint64_t> drives{0};  // how often the program took the role; any thread may write it
  // number of program threads that wait; any thread may write it
  std::atomic<uint32_t> waiting{0};
  // time of the last host call; any thread may write it
  std::atomic<uint64_t> last_host_call_ns{0};
  std::atomic<bool> is_host_call_due{false};
  std::atomic<bool> traces_waits{false};
};

// While an object of this class lives, a policy of the program runs on this thread, which may hold
// a driver role.
class Deciding {
 public:
  Deciding() { depth_ += 1; }
  ~Deciding() { depth_ -= 1; }
  Deciding(const Deciding&) = delete;
  Deciding& operator=(const Deciding&) = delete;

  // Throw Refusal on such a thread. Call this before a wait for another thread.
  static void refuse();

 private:
  static inline thread_local int depth_ = 0;
};

// The methods are called on the thread that called the driver, or on the driver's own thread. They
// are never called while the driver role is held, so each may call the driver again.
class Host {
 public:
  virtual ~Host() = default;

  // Called around each wait: give_up() releases the resources that other threads of the program
  // need (the GIL), take() takes them back. On the driver's own thread take() is called first.
  virtual void give_up() = 0;
  virtual void take() = 0;
  // Called at the end of the driver's own thread, after give_up().
  virtual void leave() = 0;

  // Called before a thread takes the role, and after it releases the role, if a transport
  // or the policy is in Python. Between the two calls no handler of SIGINT, SIGTERM or SIGHUP runs.
  // hold_interrupts() returns whether release_interrupts() must follow. It may throw the exception
  // of the handler of an earlier signal.
  virtual bool hold_interrupts() { return false; }
  virtual void release_interrupts() noexcept {}

  // Called at least every 50 ms during a wait, to handle signals, dead children and progress. An
  // exception ends the wait. `is_callers`: the call is made on a thread of the program, not on the
  // driver's own thread.
  virtual void attend(bool is_callers) = 0;

  // Called when the driver's own thread is about to sleep, because there is no work: write the
  // state of the Worker for other processes.
  virtual void note_state() {}

  // Kill the child, because a task exceeded its time limit or a run was interrupted, and report the
  // child as lost.
  virtual void end_child(int32_t child, int64_t cause) = 0;

  // Kill the child, because the connection to it is unusable. `message` states the reason.
  virtual void child_broken(int32_t child, const std::string& message) = 0;

  // Called before the driver uses more of a heap ring than was granted. Return the size that it may
  // use from now on, which is at least `bytes`; throw to refuse.
  virtual uint64_t grant(uint32_t ring, uint64_t bytes) = 0;
};

}  // namespace pto::worker
