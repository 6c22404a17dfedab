// The host's clock, for time limits and for the copies that this module makes.
#pragma once

#include <chrono>
#include <cstdint>

namespace pto::core {

inline uint64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

}  // namespace pto::core
