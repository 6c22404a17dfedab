// What the driver asks of whoever embeds it: a Worker's Python side, or a native test.
#pragma once

#include <cstdint>
#include <string>

namespace pto::hierarchy {

// Called on the thread that called the driver, or on the driver's own, and never while the driver's
// role is held: each may call the driver again.
class Host {
 public:
  virtual ~Host() = default;

  // Gives up what other threads of the program need (the GIL) before a wait, and takes it back. The
  // driver's own thread begins with a take().
  virtual void give_up() = 0;
  virtual void take() = 0;
  // The driver's own thread ends, having given up what it took.
  virtual void leave() = 0;

  // Around the time for which a thread holds the role of a driver that calls Python: an engine, a
  // transport or a policy. Handlers of SIGINT, SIGTERM and SIGHUP do not run there.
  // hold_interrupts() may throw what the handler of an earlier signal raises; else it returns
  // whether release_interrupts() has to follow.
  virtual bool hold_interrupts() { return false; }
  virtual void release_interrupts() noexcept {}

  // At the latest every 50 ms of a wait: signals, dead children, progress. What it throws ends the
  // wait. `is_callers`: on a thread of the program, not on the driver's own.
  virtual void look(bool is_callers) = 0;

  // Kill the child, which is past a deadline or has to go, and report it as lost.
  virtual void end_child(int32_t child, int64_t cause) = 0;

  // The connection to the child is of no use any more; it has to go. `words` say why.
  virtual void child_broken(int32_t child, const std::string& words) = 0;

  // The first `bytes` of a heap ring are about to be used. Gives how many may be, at least so many;
  // throws to refuse.
  virtual uint64_t grant(uint32_t ring, uint64_t bytes) = 0;
};

}  // namespace pto::hierarchy
