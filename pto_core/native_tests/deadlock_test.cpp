// Tests that the driver proves a deadlock by events, not by a clock.
#include <thread>

#include "check.hpp"
#include "driver/child_group.hpp"
#include "driver/tasks.hpp"

namespace {

constexpr uint64_t kRingBytes = 4096;

// Counts the failed requests for memory since the end of the last task.
class WatchedEngine : public Engine {
 public:
  WatchedEngine(const Configuration& configuration, std::atomic<int>* in_vain)
      : Engine(configuration), in_vain_(*in_vain) {}

  Submitted allocate(uint64_t bytes, uint64_t* address, Instructions& out, uint32_t run) override {
    const Submitted answer = Engine::allocate(bytes, address, out, run);
    if (answer.task == kNone) in_vain_ += 1;
    return answer;
  }
  void completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause,
                  Instructions& out) override {
    Engine::completion(child, count, outcome, cause, out);
    in_vain_ = 0;
  }

 private:
  std::atomic<int>& in_vain_;
};

class World {
 public:
  explicit World(Body body)
      : group(1, 16, std::move(body), false, kRingBytes,
              [this](const Configuration& configuration) {
                return std::make_unique<WatchedEngine>(configuration, &in_vain);
              }) {}

  // Allocate more than a ring holds, in one scope. Return whether a deadlock was proven.
  bool allocates_too_much() {
    uint64_t address = 0;
    try {
      for (uint64_t bytes = 0; bytes <= kRingBytes; bytes += 1024)
        group.driver->allocate(1024, &address);
    } catch (const DeadlockFound& found) {
      return found.proof.size == kRingBytes;
    }
    return false;
  }

  std::atomic<int> in_vain{0};
  ChildGroup group;
};

}  // namespace

TEST(without_running_tasks_the_first_failed_attempt_is_the_proof) {
  World world([](int32_t, const pto_frame&, const uint64_t*, std::string*) { return true; });
  world.group.driver->run_begin(Hazards::kRaw);
  CHECK(world.allocates_too_much());
  CHECK_EQUAL(world.in_vain.load(), 1);
  world.group.driver->run_end();
}

// Invariant: A submit waits only for heap memory. A wait without end is proven, with numbers, at
// the first attempt after the end of the last task.
//
// A running task may free the requested memory; when the last task has ended, no task can.
TEST(the_end_of_the_last_running_task_is_the_proof) {
  std::atomic<bool> is_open{false};
  World world([&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    is_open.wait(false);
    return true;
  });
  world.group.driver->run_begin(Hazards::kRaw);
  Submission submission;
  submission.kind = Kind::kSub;
  submission.callable = world.group.noop;
  const Member member{};
  submission.members = {&member, 1};
  world.group.driver->submit(submission);
  std::thread opener([&] {
    while (world.in_vain < 3) std::this_thread::yield();
    is_open = true;
    is_open.notify_all();
  });
  CHECK(world.allocates_too_much());
  CHECK_EQUAL(world.in_vain.load(), 1);
  CHECK(is_open);
  opener.join();
  world.group.driver->run_end();
}

TEST(a_full_ring_blocks_until_a_task_has_ended_and_a_deadlock_is_proven) {
  std::atomic<int> sum = 0;
  ChildGroup group(
      2, 16,
      [&](int32_t, const pto_frame&, const uint64_t* data, std::string*) {
        CHECK(data[1] != 0);
        *word_of(data) = 1;
        sum += 1;
        return true;
      },
      false, 4096);
  group.driver->run_begin(Hazards::kRaw);
  for (int i = 0; i < 2000; ++i) {
    group.driver->scope_begin();
    Task task(0, 1500, Tag::kOutput, 0);
    submit(group, task);
    CHECK(task.key.address != 0);
    group.driver->scope_end();
  }
  bool was_stuck = false;
  try {
    for (int i = 0; i < 10; ++i) {
      uint64_t address = 0;
      group.driver->allocate(1024, &address);
    }
  } catch (const DeadlockFound& found) {
    was_stuck = true;
    CHECK_EQUAL(found.proof.size, uint64_t{4096});
  }
  CHECK(was_stuck);
  group.driver->run_end();
  CHECK_EQUAL(sum.load(), 2000);
}
