// Random numbers that can be reproduced from a printed seed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // Return a number from 0 to `limit` - 1.
  uint64_t below(uint64_t limit) { return engine_() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  uint8_t byte() { return static_cast<uint8_t>(engine_()); }
  uint64_t next() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

// Return the value of PTO_TEST_SEED, or a new seed. Print it, so that a failure can be reproduced.
inline uint64_t chosen_seed() {
  const char* value = std::getenv("PTO_TEST_SEED");
  const uint64_t seed = value ? std::strtoull(value, nullptr, 0) : std::random_device()();
  std::printf("  PTO_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}
