#include "driver/role.hpp"

#include "driver/deciding.hpp"

namespace pto::hierarchy {

// A Python transport, engine or policy that was called with the role, or a signal handler inside
// it, calls the driver again.
void GuardedState::refuse_inside() const {
  if (holder_.load(std::memory_order_relaxed) != std::this_thread::get_id()) return;
  throw Refusal(Refusal::Kind::kUsage,
                "the Worker is used inside a call of it, perhaps by the handler of a signal; let "
                "the handler only note the signal, or raise");
}

void Role::wait() {
  if (Deciding::is_so()) {
    throw Refusal(Refusal::Kind::kUsage,
                  "a placement policy asks the Worker that waits for its decision; decide by the "
                  "candidates alone");
  }
  guarded_.refuse_inside();
  guarded_.host_.give_up();
  lock_.lock();
  guarded_.host_.take();
}

void Role::lock_in_turns() {
  while (!lock_.try_lock()) {
    guarded_.host_.give_up();
    // Release the role at once, because another thread may hold the next resource while it waits
    // for the role.
    {
      const std::lock_guard until_free(guarded_.mutex_);
    }
    guarded_.host_.take();
  }
}

}  // namespace pto::hierarchy
