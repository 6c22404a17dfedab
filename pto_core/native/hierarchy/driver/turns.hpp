// The turn of a Worker: the right to have a run or a capture open. Threads receive it one after the
// other, in the order in which they ask for it.
//
// A run has its turn from before its start until its outcome has been read and its objects have
// been dropped. So the state of the driver belongs to the run whose turn it is.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <semaphore>
#include <utility>

#include "driver/host.hpp"
#include "processes/current_process.hpp"

namespace pto::hierarchy {

// Call the methods with the GIL held: it protects the fields.
class Turns {
 public:
  explicit Turns(Host& host) : host_(host), process_(current_process()) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Take the turn for `thread`, unless another thread has it. Return whether it was taken.
  bool try_take(uint64_t thread);
  // Wait for the turn without the GIL, and take it for `thread`. `check(waited_ns)` is called at
  // least every 50 ms; an exception of it ends the wait.
  void take(uint64_t thread, const std::function<void(uint64_t waited_ns)>& check);
  // Pass the turn to the thread that has waited longest.
  void release();
  // Let each waiting thread call `check`.
  void wake_all();

  // The thread that has the turn, or 0.
  uint64_t owner() const { return owner_; }
  // Return whether the thread has the turn or waits for it.
  bool has(uint64_t thread) const;

 private:
  struct Waiting {
    explicit Waiting(uint64_t thread) : thread(thread) {}
    const uint64_t thread;
    std::counting_semaphore<> woken{0};
    bool has_turn = false;
  };

  Host& host_;
  const pid_t process_;
  uint64_t owner_ = 0;
  std::deque<Waiting*> waiting_;
};

// Owns a turn and releases it.
class Turn {
 public:
  Turn() = default;
  explicit Turn(Turns& turns) : turns_(&turns) {}
  Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}
  Turn& operator=(Turn&& other) noexcept {
    std::swap(turns_, other.turns_);
    return *this;
  }
  ~Turn() { end(); }

  void end() {
    if (turns_) std::exchange(turns_, nullptr)->release();
  }
  explicit operator bool() const { return turns_ != nullptr; }

 private:
  Turns* turns_ = nullptr;
};

}  // namespace pto::hierarchy
