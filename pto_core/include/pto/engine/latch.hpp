// The first error of a run. Any thread may report an error. The first one stays until clear().
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "pto/abi/status.h"
#include "pto/engine/text.hpp"

namespace pto::engine {

// The facts of an error, for programs. The latch also holds an error message for the user.
struct ErrorFacts {
  pto_status status;
  int64_t task = -1;
  int64_t other_task = -1;
  int32_t func_id = -1;
  uint64_t value = 0;
  uint64_t limit = 0;
  int32_t code = 0;
};

class ErrorLatch {
 public:
  ErrorLatch() { clear(); }

  bool is_set() const { return state_.load(std::memory_order_acquire) == kSet; }
  pto_status status() const { return is_set() ? error_.status : PTO_OK; }
  const pto_error* error() const { return is_set() ? &error_ : &none_; }

  // Latch the facts, and the message that consists of `parts`. Do nothing if an error is already
  // latched.
  template <class... Parts>
  void latch(const ErrorFacts& facts, Parts... parts) {
    if (!claim()) return;
    error_.status = facts.status;
    error_.task = facts.task;
    error_.other_task = facts.other_task;
    error_.func_id = facts.func_id;
    error_.value = facts.value;
    error_.limit = facts.limit;
    error_.code = facts.code;
    Text(error_.message, sizeof error_.message).add(parts...);
    state_.store(kSet, std::memory_order_release);
  }

  void latch(const pto_error& error) {
    if (!claim()) return;
    error_ = error;
    state_.store(kSet, std::memory_order_release);
  }

  // Call this only while no other thread uses the latch.
  void clear() {
    reset(error_);
    reset(none_);
    state_.store(kClear, std::memory_order_relaxed);
  }

 private:
  enum : uint32_t { kClear, kWriting, kSet };

  bool claim() {
    uint32_t expected = kClear;
    return state_.compare_exchange_strong(expected, kWriting, std::memory_order_relaxed);
  }

  static void reset(pto_error& error) {
    error.status = PTO_OK;
    error.func_id = error.core = error.line = -1;
    error.task = error.other_task = -1;
    error.value = error.limit = 0;
    error.file[0] = error.message[0] = error.vendor_function[0] = '\0';
    error.vendor_code = error.code = 0;
  }

  std::atomic<uint32_t> state_{kClear};
  pto_error error_;
  pto_error none_;
};

}  // namespace pto::engine
