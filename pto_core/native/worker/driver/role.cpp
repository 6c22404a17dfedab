#include "driver/role.hpp"

#include "driver/host.hpp"

namespace pto::worker {

// This happens if a Python transport or policy, which is called with the role held, or a
// signal handler inside it, calls the driver again.
void GuardedState::refuse_inside() const {
  if (holder_.load(std::memory_order_relaxed) != std::this_thread::get_id()) return;
  throw Refusal(Refusal::Kind::kUsage,
                "the Worker was called inside another call of it, perhaps by a signal handler; let "
                "the handler only record the signal, or raise an exception");
}

void Deciding::refuse() {
  if (depth_ == 0) return;
  throw Refusal(Refusal::Kind::kUsage,
                "a placement policy called the Worker that waits for its decision; decide by the "
                "candidates alone");
}

void Role::wait() {
  Deciding::refuse();
  guarded_.refuse_inside();
  guarded_.host_.give_up();
  lock_.lock();
  guarded_.host_.take();
}

void Role::lock_in_turns() {
  while (!lock_.try_lock()) {
    guarded_.host_.give_up();
    // Only wait until the role is free, and release it at once: another thread may hold the
    // resources that this thread takes next, and wait for the role.
    {
      const std::lock_guard until_free(guarded_.mutex_);
    }
    guarded_.host_.take();
  }
}

}  // namespace pto::worker
