// Holding the driver's role. Only for the sources of this room.
#pragma once

#include <mutex>

#include "driver/deciding.hpp"
#include "driver/driver.hpp"

namespace pto::hierarchy {

class Driver::Role {
 public:
  // For a thread of the program: it gives up what other holders may need before it waits.
  explicit Role(Driver& driver) : lock_(driver.role_, std::try_to_lock) {
    driver.drives_.fetch_add(1, std::memory_order_relaxed);
    wait(driver);
  }

  // The same, for one that only asks: the driver's own thread goes on driving for it.
  enum Asking { kAsks };
  Role(Driver& driver, Asking) : lock_(driver.role_, std::try_to_lock) { wait(driver); }

  // Tries only.
  Role(Driver& driver, std::try_to_lock_t) : lock_(driver.role_, std::try_to_lock) {}

  explicit operator bool() const { return lock_.owns_lock(); }
  void leave() { lock_.unlock(); }

 private:
  void wait(Driver& driver) {
    if (lock_.owns_lock()) return;
    if (Deciding::is_so()) {
      throw Refusal(Refusal::Kind::kUsage,
                    "a placement policy asks the Worker that waits for its decision; decide by the "
                    "candidates alone");
    }
    driver.host_.give_up();
    lock_.lock();
    driver.host_.take();
  }

  std::unique_lock<std::mutex> lock_;
};

}  // namespace pto::hierarchy
