// Tests that a waiter that polls the descriptor of a bell loses no ring. The waits are limited to
// many seconds, so a lost ring makes a test fail.
#include "remote/bell_watch.hpp"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "check.hpp"

namespace {

using namespace pto::worker;
namespace engine = pto::engine;

constexpr uint64_t kRounds = check::kIsSanitized ? 5000 : 20000;
constexpr int kLongMs = 20'000;

struct Side {
  pto_bell bell{};
  alignas(64) std::atomic<uint64_t> count{0};
  const int descriptor = open_bell_descriptor(&bell);
  ~Side() { close(descriptor); }
};

bool is_readable(const BellWatch& watch, int timeout_ms) {
  pollfd waiting{watch.descriptor(), POLLIN, 0};
  return poll(&waiting, 1, timeout_ms) == 1;
}

void await(Side& side, uint64_t count) {
  BellWatch watch(&side.bell);
  while (true) {
    watch.arm();
    if (side.count.load() >= count) return;
    CHECK(is_readable(watch, kLongMs));
  }
}

void publish(Side& side, uint64_t count) {
  side.count.store(count);
  engine::ring_published(&side.bell);
}

TEST(no_ring_is_lost_between_waiters_that_poll) {
  Side sides[2];
  std::thread other([&] {
    for (uint64_t round = 1; round <= kRounds; ++round) {
      await(sides[1], round);
      publish(sides[0], round);
    }
  });
  for (uint64_t round = 1; round <= kRounds; ++round) {
    publish(sides[1], round);
    await(sides[0], round);
  }
  other.join();
}

TEST(only_an_armed_watch_becomes_readable) {
  Side side;
  BellWatch watch(&side.bell);
  CHECK_EQUAL(watch.descriptor(), side.descriptor);
  publish(side, 1);
  CHECK(!is_readable(watch, 0));
  watch.arm();
  CHECK(!is_readable(watch, 0));
  publish(side, 2);
  CHECK(is_readable(watch, 0));
  watch.arm();
  CHECK(!is_readable(watch, 0));
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
