// Tests of the progress table. The children are threads, which wait for each other only through the
// table.

#include "progress_table.hpp"

#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

using namespace pto::worker;
namespace engine = pto::engine;

constexpr uint64_t kFrames = check::kIsSanitized ? 20000 : 100000;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

class ProgressTableMemory {
 public:
  explicit ProgressTableMemory(uint32_t children)
      : memory_(std::aligned_alloc(64, ProgressTable::bytes_needed(children))) {
    std::memset(memory_.get(), 0, ProgressTable::bytes_needed(children));
    progress_ = std::make_unique<ProgressTable>(ProgressTable::create(memory_.get(), children, 2));
  }
  const ProgressTable* operator->() const { return progress_.get(); }
  const ProgressTable& operator*() const { return *progress_; }

 private:
  std::unique_ptr<void, Free> memory_;
  std::unique_ptr<ProgressTable> progress_;
};

void run_frame(const ProgressTable& progress, int32_t child, bool succeeds = true) {
  progress.start(child);
  progress.complete(child, succeeds);
}

TEST(frames_are_counted_with_their_outcome) {
  ProgressTableMemory progress(2);
  for (uint64_t count = 1; count <= 3000; ++count) {
    progress->start(1);
    CHECK(progress->child(1).started == count && progress->child(1).completed == count - 1);
    progress->complete(1, count % 3 == 0);
    CHECK(progress->child(1).completed == count);
    for (uint64_t back = 0; back <= kOutcomesTrusted && back < count; ++back)
      CHECK(progress->has_succeeded(1, count - back) == ((count - back) % 3 == 0));
  }
  CHECK(progress->child(0).completed == 0);
}

TEST(a_skipped_frame_is_completed_without_a_start) {
  ProgressTableMemory progress(1);
  progress->complete(0, false);
  CHECK(progress->child(0).started == 0 && progress->child(0).completed == 1);
  progress->start(0);
  CHECK(progress->child(0).started == 2 && progress->child(0).completed == 1);
}

TEST(a_frame_that_is_skipped_before_its_start_does_not_begin) {
  ProgressTableMemory progress(1);
  progress->skip(0, 2);
  CHECK(progress->start(0));
  progress->complete(0, true);
  CHECK(!progress->start(0));
  progress->complete(0, false);
  CHECK(progress->start(0));
}

// Either the parent sees that a frame has begun, or the child sees that it must skip the frame.
TEST(a_frame_never_begins_after_the_parent_saw_that_it_had_not) {
  ProgressTableMemory progress(1);
  std::vector<uint8_t> ran(kFrames + 1), was_withdrawn(kFrames + 1);
  std::thread child([&] {
    for (uint64_t count = 1; count <= kFrames; ++count) {
      ran[count] = progress->start(0);
      progress->complete(0, ran[count] != 0);
    }
  });
  for (uint64_t count = 1; count <= kFrames;) {
    while (count > progress->child(0).completed.load() + kLargestWindow) std::this_thread::yield();
    progress->skip(0, count);
    const uint64_t started = progress->child(0).started.load();
    was_withdrawn[count] = started < count;
    count = std::max(count + 1, started + 1);
  }
  child.join();
  for (uint64_t count = 1; count <= kFrames; ++count) CHECK(!(ran[count] && was_withdrawn[count]));
}

TEST(frames_sent_to_another_host_may_have_begun) {
  ProgressTableMemory progress(2);
  progress->pass_on(1, 3);
  CHECK(progress->child(1).may_have_begun == 3 && progress->child(1).started == 0);
  progress->start_elsewhere(1, 2, 77);
  CHECK(progress->child(1).started == 2 && progress->child(1).started_ns == 77);
  progress->complete(1, true);
  CHECK(progress->child(1).started == 2 && progress->child(1).completed == 1);
  progress->lose(1, 5);
  CHECK(progress->child(1).may_have_begun == 5);
  run_frame(*progress, 1);
  CHECK(progress->child(1).may_have_begun == 5 && progress->child(1).started == 6);
}

TEST(children_that_pass_no_frames_on_do_not_write_may_have_begun) {
  ProgressTableMemory progress(1);
  run_frame(*progress, 0);
  progress->complete(0, false);
  CHECK(progress->child(0).may_have_begun == 0);
}

TEST(a_requirement_follows_the_outcome) {
  ProgressTableMemory progress(2);
  CHECK(progress->requirement(0, 1, 1, 1) == Requirement::kPending);
  run_frame(*progress, 1);
  CHECK(progress->requirement(0, 1, 1, 1) == Requirement::kMet);
  CHECK(progress->requirement(0, 1, 1, 2) == Requirement::kPending);
  run_frame(*progress, 1, false);
  CHECK(progress->requirement(0, 1, 1, 2) == Requirement::kFailed);
  CHECK(progress->requirement(0, 1, 1, 1) == Requirement::kMet);
}

TEST(a_skip_ends_the_wait_for_one_frame_only) {
  ProgressTableMemory progress(2);
  progress->skip(0, 7);
  CHECK(progress->requirement(0, 7, 1, 1) == Requirement::kFailed);
  CHECK(progress->requirement(0, 6, 1, 1) == Requirement::kPending);
  CHECK(progress->requirement(0, 7 + kLargestWindow, 1, 1) == Requirement::kPending);
}

TEST(an_overwritten_outcome_was_a_success_unless_the_parent_set_a_skip) {
  ProgressTableMemory progress(2);
  run_frame(*progress, 1, false);
  while (progress->child(1).completed <= kOutcomesTrusted) run_frame(*progress, 1);
  CHECK(progress->requirement(0, 1, 1, 1) == Requirement::kFailed);
  run_frame(*progress, 1);
  CHECK(progress->requirement(0, 1, 1, 1) == Requirement::kMet);
  progress->skip(0, 1);
  CHECK(progress->requirement(0, 1, 1, 1) == Requirement::kFailed);
}

// Invariant: Task frames of a child are counted from 1, over all its connections. Tasks that a lost
// child had not completed count as failed.
TEST(uncompleted_frames_of_a_lost_child_have_failed) {
  ProgressTableMemory progress(2);
  run_frame(*progress, 1);
  progress->start(1);  // the child dies in this frame
  progress->want_ring(0, 1);
  const uint32_t rung = progress->child(0).bell.rung;
  CHECK(progress->spin_places()->take(ProgressTable::spinner(1)) == 0);
  progress->lose(1, 5);
  CHECK(progress->has_succeeded(1, 1));
  for (uint64_t count = 2; count <= 5; ++count)
    CHECK(progress->requirement(0, 1, 1, count) == Requirement::kFailed);
  CHECK(progress->child(1).started == 5 && progress->child(1).completed == 5);
  CHECK(progress->child(0).bell.rung != rung);
  CHECK(progress->spin_places()->take(9) == 0);
  run_frame(*progress, 1);  // the replacement of the child continues
  CHECK(progress->requirement(0, 1, 1, 6) == Requirement::kMet);
}

TEST(start_times_are_recorded_if_requested) {
  ProgressTableMemory progress(1);
  run_frame(*progress, 0);
  CHECK(progress->child(0).started_ns == 0);
  progress->child(0).wants_clock = 1;
  const uint64_t before = engine::monotonic_ns();
  run_frame(*progress, 0);
  CHECK(progress->child(0).started_ns >= before);
}

// Sleep without spinning, and so long that only a ring can end the wait.
constexpr engine::WaitPolicy kSleepAtOnce{0, 0, 20'000'000'000};

Requirement wait_for(const ProgressTable& progress, int32_t child, uint64_t count, int32_t required,
                     uint64_t required_count) {
  engine::Waiter waiter(&progress.child(child).bell, nullptr, ProgressTable::spinner(child),
                        kSleepAtOnce);
  Requirement found = Requirement::kPending;
  const auto look = [&] {
    found = progress.requirement(child, count, required, required_count);
    return found != Requirement::kPending;
  };
  CHECK(waiter.wait(look, [&] { progress.want_ring(child, required); }));
  return found;
}

// A chain that alternates between children: every frame requires the previous one.
TEST(a_chain_that_alternates_between_children_never_stalls) {
  constexpr int32_t kChildren = 3;
  ProgressTableMemory progress(kChildren);
  std::vector<uint64_t> values(1, 0);  // only the thread whose turn it is accesses it
  std::vector<std::thread> threads;
  for (int32_t child = 0; child < kChildren; ++child)
    threads.emplace_back([&, child] {
      const int32_t before = (child + kChildren - 1) % kChildren;
      for (uint64_t count = 1; count <= kFrames / 4; ++count) {
        const uint64_t needed = child == 0 ? count - 1 : count;
        if (needed > 0)
          CHECK(wait_for(*progress, child, count, before, needed) == Requirement::kMet);
        progress->start(child);
        ++values[0];
        progress->complete(child, true);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(values[0] == kChildren * (kFrames / 4));
}

// Invariant: A child evaluates the requirements of its tasks as the parent does, no matter how far
// the other child has advanced.
//
// One child runs far ahead, and some of its frames fail. The other child must evaluate the
// requirement of every frame as the parent would. The parent (the test) lets the first child
// continue only after it has set the skips.
TEST(a_consumer_far_behind_evaluates_as_the_parent_does) {
  ProgressTableMemory progress(2);
  const auto fails = [](uint64_t count) { return count % 7 == 3; };
  std::atomic<uint64_t> limit{kLargestWindow};
  std::thread producer([&] {
    for (uint64_t count = 1; count <= kFrames; ++count) {
      while (limit.load() < count) sched_yield();
      run_frame(*progress, 0, !fails(count));
    }
  });
  std::thread consumer([&] {
    std::minstd_rand random(1);
    for (uint64_t count = 1; count <= kFrames; ++count) {
      const Requirement found = wait_for(*progress, 1, count, 0, count);
      CHECK((found == Requirement::kFailed) == fails(count));
      progress->complete(1, found == Requirement::kMet);
      if (random() % 64 == 0) sched_yield();
    }
  });
  // At most a window of frames of the consumer is in flight. The parent handles the completions of
  // the producer, then lets it continue.
  for (uint64_t told = 0; told < kFrames;) {
    const uint64_t done = progress->child(0).completed.load();
    const uint64_t in_reach = progress->child(1).completed.load() + kLargestWindow;
    while (told < std::min(done, in_reach)) {
      ++told;
      if (fails(told)) progress->skip(1, told);
    }
    limit.store(told + kLargestWindow);
    sched_yield();
  }
  producer.join();
  consumer.join();
}

// The parent sets the skip while the child is about to sleep.
TEST(a_skip_wakes_a_child_that_waits_for_a_lost_frame) {
  ProgressTableMemory progress(2);
  std::thread child([&] {
    for (uint64_t count = 1; count <= kFrames / 4; ++count) {
      CHECK(wait_for(*progress, 0, count, 1, 1) == Requirement::kFailed);
      progress->complete(0, false);
    }
  });
  for (uint64_t count = 1; count <= kFrames / 4; ++count) {
    while (progress->child(0).completed.load() + 2 < count) sched_yield();
    progress->skip(0, count);
  }
  child.join();
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
