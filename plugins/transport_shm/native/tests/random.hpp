// Numbers that a printed seed repeats.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // 0 to `limit` - 1
  uint64_t below(uint64_t limit) { return engine_() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  uint8_t byte() { return static_cast<uint8_t>(engine_()); }
  uint64_t next() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

// PTO_TEST_SEED, or a new one each time; printed, so that a failure can be repeated.
inline uint64_t chosen_seed() {
  const char* given = std::getenv("PTO_TEST_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device()();
  std::printf("  PTO_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}
