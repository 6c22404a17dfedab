#include "driver/turns.hpp"

#include <algorithm>
#include <chrono>

#include "pto/engine/bell.hpp"

namespace pto::hierarchy {

bool Turns::try_take(uint64_t thread) {
  if (owner_ != 0) return false;
  owner_ = thread;
  return true;
}

void Turns::take(uint64_t thread, const std::function<void(uint64_t waited_ns)>& check) {
  constexpr std::chrono::milliseconds kSlice(50);
  if (try_take(thread)) return;
  const uint64_t begin = engine::monotonic_ns();
  Waiting mine(thread);
  waiting_.push_back(&mine);
  try {
    while (!mine.has_turn) {
      host_.give_up();
      static_cast<void>(mine.woken.try_acquire_for(kSlice));
      host_.take();
      if (!mine.has_turn) check(engine::monotonic_ns() - begin);
    }
  } catch (...) {
    std::erase(waiting_, &mine);
    if (mine.has_turn) release();  // received inside the check
    throw;
  }
}

// A forked process has a copy of the turn, and none of the threads.
void Turns::release() {
  if (process_ != current_process()) return;
  owner_ = 0;
  if (waiting_.empty()) return;
  Waiting& next = *waiting_.front();
  waiting_.pop_front();
  owner_ = next.thread;
  next.has_turn = true;
  next.woken.release();
}

void Turns::wake_all() {
  for (Waiting* each : waiting_) each->woken.release();
}

bool Turns::has(uint64_t thread) const {
  return owner_ == thread ||
         std::any_of(waiting_.begin(), waiting_.end(),
                     [thread](const Waiting* each) { return each->thread == thread; });
}

}  // namespace pto::hierarchy
