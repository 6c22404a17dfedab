// One selected device of the driver: its context, and the first failure that made it unusable.
//
// All calls that use the device go through here. A thread locks the session, enters, and then
// calls; enter() selects the context on the thread, which each thread has for itself. After a
// failure that needs a forced reset, enter() refuses every call with that first failure: calls on
// such a device return consequences only, and may hang.
#pragma once

#include <memory>
#include <mutex>
#include <span>

#include "abi/launch.h"
#include "cann/driver.hpp"

namespace pto::a2a3 {

class CardSession {
 public:
  // `streams`: the streams of the device, null while there are none. A call can fail because of
  // earlier work on them.
  CardSession(const cann::CannDriver& driver, std::span<const cann::Handle> streams)
      : driver_(driver), streams_(streams) {}
  CardSession(const CardSession&) = delete;
  CardSession& operator=(const CardSession&) = delete;

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // The members below need the lock.

  // Selects a device by its logical number.
  pto_status select(int32_t device, pto_error* error);
  // Resets the device. An unusable device is synchronised for a bounded time, then reset by force.
  // All its handles become invalid.
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

  // Writes the failure of a call to `error`. Keeps it if it is the first failure that makes the
  // device unusable. If a stream has a failure that caused this one, that failure is used instead.
  pto_status report(const pto_error& failure, pto_error* error);
  // Keeps a failure of the device that no code of the driver reports; returns the first failure.
  pto_status lose(const pto_error& failure, pto_error* error);
  // Copies memory of an unusable device, for a report. It is not known that the driver permits this
  // after every failure, or that it answers: returns false if it refuses, and after 2 s.
  bool salvage(void* host, uint64_t address, size_t bytes) const;
  bool is_poisoned() const noexcept { return first_.status != PTO_OK; }
  const pto_error& first_failure() const noexcept { return first_; }

  const cann::CannDriver& driver() const noexcept { return driver_; }
  const cann::Functions& functions() const noexcept { return driver_.functions(); }

 private:
  pto_error find_cause(const pto_error& failure) const;

  const cann::CannDriver& driver_;
  const std::span<const cann::Handle> streams_;
  std::mutex mutex_;
  int32_t device_ = -1;
  cann::Handle context_ = nullptr;
  pto_error first_ = {};
};

// Device memory and copies. Any thread may call. Addresses are the driver's; the host never
// dereferences them.
class CardMemory {
 public:
  explicit CardMemory(CardSession& session) : session_(session) {}

  // The address is a multiple of 64. The content is undefined.
  pto_status allocate(size_t bytes, uint64_t* address, pto_error* error);
  pto_status free(uint64_t address, pto_error* error);
  // A copy does not wait for launches.
  pto_status copy_in(uint64_t address, const void* host, size_t bytes, pto_error* error);
  pto_status copy_out(void* host, uint64_t address, size_t bytes, pto_error* error);
  pto_status fill(uint64_t address, uint8_t value, size_t bytes, pto_error* error);
  pto_status usage(size_t* unused, size_t* total, pto_error* error);

 private:
  pto_status copy(void* target, const void* source, size_t bytes, int32_t kind, pto_error* error);

  CardSession& session_;
};

struct LogSettings {
  int32_t level = PTO_LOG_WARN;  // less severe messages are not shown
  bool is_json = false;
};

// The reader of the device's log, which is a ring in device memory (pto_a2a3_log).
//
// One thread at a time calls. The device writes its messages at any time.
class DeviceLog {
 public:
  // A device writes its first message after this.
  void open(uint64_t address, bool is_json);
  // Shows the new messages on standard error. Returns the number of messages that the host has read
  // since open(). A failure of the driver has no consequence here: the next call of the driver
  // returns it.
  uint64_t read(CardMemory& memory);
  // The same on an unusable device, if the driver still copies memory.
  void salvage(CardSession& session);

 private:
  void show();

  uint64_t address_ = 0;
  bool is_json_ = false;
  uint64_t read_ = 0, dropped_ = 0;
  std::unique_ptr<pto_a2a3_log> ring_;  // the newest copy
};

}  // namespace pto::a2a3
