// One selected device of the driver: its context, and the first failure that made it unusable.
//
// All calls that use the device go through here. A thread locks the session, enters, and then
// calls; enter() selects the context on the thread, which each thread has for itself. After a
// failure that needs a forced reset, enter() refuses every call with that first failure: calls on
// such a device return consequences only, and may hang.
#pragma once

#include <mutex>
#include <span>

#include "cann/driver.hpp"

namespace pto::a2a3 {

class Session {
 public:
  // `streams`: those of the device, null while there are none. A call can fail because of earlier
  // work on them.
  Session(const cann::Driver& driver, std::span<const cann::Handle> streams)
      : driver_(driver), streams_(streams) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // The members below need the lock.

  // Selects a device by its logical number.
  pto_status select(int32_t device, pto_error* error);
  // Resets the device. An unusable one is synchronised for a bounded time, then reset by force. All
  // its handles become invalid.
  pto_status reset(pto_error* error);
  bool is_selected() const noexcept { return context_ != nullptr; }
  int32_t device() const noexcept { return device_; }

  pto_status enter(pto_error* error);

  // Calls a function of the driver and reports its failure.
  template <class Function, class... Arguments>
  pto_status call(pto_error* error, const Function& function, Arguments... arguments) {
    pto_error found = {};
    const pto_status status = driver_.call(&found, function, arguments...);
    return status == PTO_OK || status == PTO_PENDING ? status : report(found, error);
  }

  // Writes the failure of a call, and keeps it if it makes the device unusable and is the first.
  // If it is the consequence of another failure, which a stream has, that one replaces it.
  pto_status report(const pto_error& failure, pto_error* error);
  // Keeps a failure of the device that no code of the driver reports; returns the first failure.
  pto_status lose(const pto_error& failure, pto_error* error);
  // Copies memory of an unusable device, for a report. It is not known that the driver permits this
  // after every failure, or that it answers: returns false if it refuses, and after 2 s.
  bool salvage(void* host, uint64_t address, size_t bytes) const;
  bool is_poisoned() const noexcept { return first_.status != PTO_OK; }
  const pto_error& first_failure() const noexcept { return first_; }

  const cann::Driver& driver() const noexcept { return driver_; }
  const cann::Functions& functions() const noexcept { return driver_.functions(); }

 private:
  pto_error find_cause(const pto_error& failure) const;

  const cann::Driver& driver_;
  const std::span<const cann::Handle> streams_;
  std::mutex mutex_;
  int32_t device_ = -1;
  cann::Handle context_ = nullptr;
  pto_error first_ = {};
};

}  // namespace pto::a2a3
