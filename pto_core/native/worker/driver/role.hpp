// The driver role: only one thread at a time may use the state of a driver, through a Role object.
//
// Lock order: a thread that holds the resources of Host::give_up() must not wait for the role or a
// doorbell. If the policy or an end is in Python, a thread takes the resources of Host::take()
// before the role.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "driver/core.hpp"
#include "driver/exchange.hpp"
#include "driver/host.hpp"
#include "driver/submitter.hpp"
#include "driver/withdrawals.hpp"

namespace pto::worker {

struct DriverState {
  DriverState(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
              SharedFlags& flags)
      : core(configuration, std::move(engine), flags),
        exchange(core),
        withdrawals(core, exchange),
        submitter(core, exchange),
        replayer(core, exchange, submitter) {}

  DriverCore core;
  Exchange exchange;
  Withdrawals withdrawals;
  Submitter submitter;
  Replayer replayer;
};

// The state of a driver. It is reachable only through a Role.
class GuardedState {
 public:
  GuardedState(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine, Host& host,
               SharedFlags& flags)
      : host_(host), flags_(flags), state_(configuration, std::move(engine), flags) {}

  // Throw Refusal if this thread already has the role, that is, if it is inside a call of the
  // driver.
  void refuse_inside() const;

 private:
  friend class Role;

  Host& host_;
  SharedFlags& flags_;
  std::mutex mutex_;
  std::atomic<std::thread::id> holder_{};
  DriverState state_;
};

// Holds the role while the object lives. Its operator-> is the only access to the state.
class Role {
  // Defers signal handlers while the role is held, if the policy or an end is in Python, so that
  // no handler interrupts it.
  class HeldInterrupts {
   public:
    explicit HeldInterrupts(GuardedState& guarded)
        : host_(guarded.flags_.calls_python.load(std::memory_order_relaxed) &&
                        guarded.host_.hold_interrupts()
                    ? &guarded.host_
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
  // For a thread of the program. If it must wait for the role, it first releases the resources that
  // the holder of the role may need.
  explicit Role(GuardedState& guarded)
      : guarded_(guarded), interrupts_(guarded), lock_(guarded.mutex_, std::try_to_lock) {
    guarded.flags_.drives.fetch_add(1, std::memory_order_relaxed);
    if (!lock_.owns_lock()) wait();
    note_holder();
  }

  // For a query by a thread of the program. It does not count as driving, so the driver's own
  // thread continues to drive.
  enum Asking { kAsks };
  Role(GuardedState& guarded, Asking)
      : guarded_(guarded), interrupts_(guarded), lock_(guarded.mutex_, std::try_to_lock) {
    if (!lock_.owns_lock()) wait();
    note_holder();
  }

  // For a polling thread. kPolls: it has released all resources. kPollsHolding: it holds the
  // resources of the host and releases them while it waits for the role.
  enum Polling { kPolls, kPollsHolding };
  Role(GuardedState& guarded, Polling polling)
      : guarded_(guarded), interrupts_(guarded), lock_(guarded.mutex_, std::defer_lock) {
    polling == kPolls ? lock_.lock() : lock_in_turns();
    note_holder();
  }

  ~Role() { guarded_.holder_.store({}, std::memory_order_relaxed); }
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;

  DriverState* operator->() const { return &guarded_.state_; }

 private:
  void note_holder() {
    guarded_.holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  void wait();
  void lock_in_turns();

  GuardedState& guarded_;
  const HeldInterrupts interrupts_;  // declared before the lock, so that it is destroyed after the
                                     // lock
  std::unique_lock<std::mutex> lock_;
};

}  // namespace pto::worker
