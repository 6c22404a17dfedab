// Tests that every publication wakes a sleeper. The sleeps are limited to many seconds, so a lost
// wake-up makes a test fail.

#include "pto/engine/bell.hpp"

#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

using namespace pto::engine;

constexpr int kRounds = check::kIsSanitized ? 20000 : 60000;

constexpr uint64_t kSecond = 1'000'000'000;
// Sleep without spinning, and so long that only a ring can end the wait.
constexpr WaitPolicy kSleepAtOnce{0, 0, 20 * kSecond};

struct Side {
  pto_bell bell{};
  alignas(64) std::atomic<uint64_t> count{0};
};

using Publish = void (*)(Side&, uint64_t);

void publish_with_release(Side& side, uint64_t count) {
  side.count.store(count, std::memory_order_release);
  ring(&side.bell);
}

void publish_with_seq_cst(Side& side, uint64_t count) {
  side.count.store(count, std::memory_order_seq_cst);
  ring_published(&side.bell);
}

void idle_for_a_moment(std::minstd_rand& random) {
  for (unsigned i = random() % 300; i > 0; --i) pause_core();
}

// One side of a ping-pong: wait for each count on `mine`, then publish the next count on `theirs`.
void play(Side& mine, Side& theirs, bool begins, Publish publish) {
  std::minstd_rand random(begins ? 1 : 2);
  Waiter waiter(&mine.bell, nullptr, 1, kSleepAtOnce);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (begins) publish(theirs, round);
    const bool came = waiter.wait([&] { return mine.count.load() >= round; });
    CHECK(came);
    if (round % 4 == 0) idle_for_a_moment(random);
    if (!begins) publish(theirs, round);
  }
}

void ping_pong(Publish publish) {
  Side sides[2];
  std::thread other([&] { play(sides[1], sides[0], false, publish); });
  play(sides[0], sides[1], true, publish);
  other.join();
}

TEST(no_ring_is_lost_between_threads) {
  ping_pong(publish_with_release);
}

TEST(no_ring_is_lost_after_a_seq_cst_store) {
  ping_pong(publish_with_seq_cst);
}

// Invariant: A sleeper on a bell is woken by every publication after its last check.
TEST(no_ring_is_lost_between_processes) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* sides = new (memory) Side[2];
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    play(sides[1], sides[0], false, publish_with_seq_cst);
    std::_Exit(0);
  }
  play(sides[0], sides[1], true, publish_with_seq_cst);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  munmap(memory, 4096);
}

TEST(one_bell_serves_many_ringers_and_sleepers) {
  Side side;
  constexpr int kEach = kRounds / 4;
  constexpr uint64_t kAll = 3 * kEach;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      Waiter waiter(&side.bell, nullptr, 1, kSleepAtOnce);
      for (uint64_t seen = 0; seen < kAll; seen = side.count.load()) {
        const bool came = waiter.wait([&] { return side.count.load() > seen; });
        CHECK(came);
      }
    });
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < kEach; ++n) {
        side.count.fetch_add(1);
        ring_published(&side.bell);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(a_wait_ends_after_its_time_limit) {
  pto_bell bell{};
  const uint64_t begin = monotonic_ns();
  CHECK(!Waiter(&bell, nullptr, 1).wait([] { return false; }));
  const uint64_t passed = monotonic_ns() - begin;
  CHECK(passed >= 50'000'000 && passed < 10 * kSecond);
}

TEST(a_ring_without_a_new_sleeper_makes_no_system_call) {
  pto_bell bell{};
  ring_published(&bell);
  CHECK_EQUAL(bell.rung, 0u);
  CHECK(!Waiter(&bell, nullptr, 1, {0, 0, 20'000'000}).wait([] { return false; }));
  CHECK(has_sleepers(&bell));  // the sleeper woke up without a ring
  ring_published(&bell);
  ring_published(&bell);
  CHECK(!has_sleepers(&bell));
  CHECK_EQUAL(bell.rung, 1u);
  ring(&bell);
  CHECK_EQUAL(bell.rung, 2u);
}

TEST(a_ring_without_a_publication_ends_no_wait) {
  pto_bell bell{};
  std::atomic<bool> is_done{false};
  std::thread ringer([&] {
    while (!is_done.load()) {
      ring(&bell);
      sched_yield();
    }
  });
  CHECK(!Waiter(&bell, nullptr, 1).wait([] { return false; }));
  is_done.store(true);
  ringer.join();
}

TEST(a_waiter_announces_itself_before_its_last_check) {
  pto_bell bell{};
  bool is_announced = false;
  Waiter waiter(&bell, nullptr, 1, kSleepAtOnce);
  CHECK(waiter.wait([&] { return is_announced; }, [&] { is_announced = true; }));
}

TEST(spin_places_are_limited_and_freed) {
  SpinPlaces places{};
  places.set_limit(1);
  CHECK(places.take(1) == -1);
  places.set_limit(3);
  CHECK(places.take(1) == 0);
  CHECK(places.take(2) == 1);
  CHECK(places.take(3) == -1);
  places.give_back(0);
  CHECK(places.take(3) == 0);
  places.give_back_all(2);  // the sleeper was killed
  CHECK(places.take(4) == 1);
  places.set_limit(100);
  CHECK(places.limit == SpinPlaces::kPlaces);
}

TEST(a_spin_frees_its_place) {
  SpinPlaces places{};
  places.set_limit(2);
  pto_bell bell{};
  CHECK(!Waiter(&bell, &places, 7, {1000, 2000, 3000}).wait([] { return false; }));
  for (uint32_t holder : places.holder) CHECK(holder == 0);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
