// A small generator whose numbers depend on the seed only, on every machine.
#pragma once

#include <cstdint>

namespace pto::sim {

class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}

  // splitmix64
  uint64_t next() noexcept {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  uint32_t below(uint32_t limit) noexcept {
    return static_cast<uint32_t>((next() >> 32) * limit >> 32);
  }

 private:
  uint64_t state_;
};

}  // namespace pto::sim
