// The clock of the host, for time limits and for measuring copies.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace pto::core {

inline uint64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

inline uint64_t nanoseconds_of(double seconds) {
  constexpr double kLongest = 1e9;  // in seconds: 30 years, which stands for no limit
  return static_cast<uint64_t>(std::clamp(seconds, 0.0, kLongest) * 1e9);
}

}  // namespace pto::core
