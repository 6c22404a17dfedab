// Holding the driver's role. Only for the sources of this room.
#pragma once

#include <mutex>
#include <thread>

#include "driver/deciding.hpp"
#include "driver/driver.hpp"

namespace pto::hierarchy {

class Driver::Role {
  // Where the engine, an end or a policy is Python: no handler of a signal may interrupt it.
  class HeldInterrupts {
   public:
    explicit HeldInterrupts(Driver& driver)
        : host_(driver.needs_python_.load(std::memory_order_relaxed) &&
                        driver.host_.hold_interrupts()
                    ? &driver.host_
                    : nullptr) {}
    ~HeldInterrupts() {
      if (host_) host_->release_interrupts();
    }
    HeldInterrupts(const HeldInterrupts&) = delete;
    HeldInterrupts& operator=(const HeldInterrupts&) = delete;

   private:
    Host* const host_;
  };

 public:
  // For a thread of the program: it gives up what other holders may need before it waits.
  explicit Role(Driver& driver)
      : driver_(driver), interrupts_(driver), lock_(driver.role_, std::try_to_lock) {
    driver.drives_.fetch_add(1, std::memory_order_relaxed);
    wait();
    note_holder();
  }

  // The same, for one that only asks: the driver's own thread goes on driving for it.
  enum Asking { kAsks };
  Role(Driver& driver, Asking)
      : driver_(driver), interrupts_(driver), lock_(driver.role_, std::try_to_lock) {
    wait();
    note_holder();
  }

  // For one that waits and has given everything up; or has all that it needs of the host, and gives
  // it up in between.
  enum Looking { kLooks, kLooksHolding };
  Role(Driver& driver, Looking looking)
      : driver_(driver), interrupts_(driver), lock_(driver.role_, std::defer_lock) {
    if (looking == kLooks) lock_.lock();
    while (!lock_.owns_lock() && !lock_.try_lock()) {
      driver.host_.give_up();
      // Released at once: others may have what is taken next, and wait for the role.
      {
        const std::lock_guard until_free(driver.role_);
      }
      driver.host_.take();
    }
    note_holder();
  }

  ~Role() { driver_.role_holder_.store({}, std::memory_order_relaxed); }
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;

 private:
  void note_holder() {
    driver_.role_holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }

  void wait() {
    if (lock_.owns_lock()) return;
    if (Deciding::is_so()) {
      throw Refusal(Refusal::Kind::kUsage,
                    "a placement policy asks the Worker that waits for its decision; decide by the "
                    "candidates alone");
    }
    driver_.refuse_inside();
    driver_.host_.give_up();
    lock_.lock();
    driver_.host_.take();
  }

  Driver& driver_;
  const HeldInterrupts interrupts_;  // released after the lock
  std::unique_lock<std::mutex> lock_;
};

}  // namespace pto::hierarchy
