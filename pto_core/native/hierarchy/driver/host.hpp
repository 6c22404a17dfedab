// The interface from the driver to its embedder: a Worker's Python side, or a native test.
#pragma once

#include <cstdint>
#include <string>

namespace pto::hierarchy {

// The methods are called on the thread that called the driver, or on the driver's own thread. They
// are never called while the driver role is held, so each may call the driver again.
class Host {
 public:
  virtual ~Host() = default;

  // Release the resources that other threads of the program need (the GIL) before a wait; take them
  // back after it. The driver's own thread begins with take().
  virtual void give_up() = 0;
  virtual void take() = 0;
  // Called when the driver's own thread ends, after it has released these resources.
  virtual void leave() = 0;

  // Called before and after the time in which a thread holds the role of a driver whose engine,
  // transport or policy is in Python. Handlers of SIGINT, SIGTERM and SIGHUP do not run during this
  // time. hold_interrupts() may throw the exception of a handler for an earlier signal; otherwise
  // it returns whether release_interrupts() must follow.
  virtual bool hold_interrupts() { return false; }
  virtual void release_interrupts() noexcept {}

  // Called at least every 50 ms during a wait, to handle signals, dead children and progress. An
  // exception ends the wait. `is_callers`: the call is made on a thread of the program, not on the
  // driver's own thread.
  virtual void look(bool is_callers) = 0;

  // Kill the child, because a task exceeded its time limit or the child must end, and report it as
  // lost.
  virtual void end_child(int32_t child, int64_t cause) = 0;

  // The connection to the child is unusable, so the child must end. `message` states the reason.
  virtual void child_broken(int32_t child, const std::string& message) = 0;

  // Called before the first use of bytes 0 to `bytes` - 1 of a heap ring. Return the usable size,
  // which is at least `bytes`; throw to refuse.
  virtual uint64_t grant(uint32_t ring, uint64_t bytes) = 0;
};

}  // namespace pto::hierarchy
