// A hash of the order of events in a deterministic run. It contains only ids, because addresses and
// times differ from process to process.
//
// Only ids are hashed: addresses, times and pointers differ from process to process.
#pragma once

#include <cstdint>

namespace pto::sim {

// The backend's events, in addition to the PTO_TRACE_* events of the runtime.
enum class BackendEvent : uint32_t {
  dispatch = 101,     // a = core, b = task
  acknowledge = 102,  // a = core, b = task
  finish = 103,       // a = core, b = task
  poll = 104,         // a = core, b = scheduler
  step = 105,         // a = scheduler, b = result
  yield = 106,        // a = point, b = agents stepped
  stalled = 107       // a = result
};

class Order {
 public:
  void reset() noexcept { hash_ = kStart; }

  void add(uint32_t event, uint64_t a, uint64_t b) noexcept {
    mix(event);
    mix(a);
    mix(b);
  }

  void add(BackendEvent event, uint64_t a, uint64_t b = 0) noexcept {
    add(static_cast<uint32_t>(event), a, b);
  }

  // The result is never 0, which means "no hash" in a report.
  uint64_t hash() const noexcept { return hash_ == 0 ? 1 : hash_; }

 private:
  static constexpr uint64_t kStart = 0xCBF29CE484222325u;

  void mix(uint64_t value) noexcept {
    hash_ = (hash_ ^ value) * 0x9E3779B97F4A7C15u;
    hash_ ^= hash_ >> 29;
  }

  uint64_t hash_ = kStart;
};

}  // namespace pto::sim
