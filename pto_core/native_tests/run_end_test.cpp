// Tests of the end of a run that is interrupted, that fails, or whose driver is stopped.
#include <stdexcept>

#include "check.hpp"
#include "driver/child_group.hpp"
#include "driver/tasks.hpp"

TEST(a_run_that_is_over_before_the_stop_reports_no_stop) {
  std::atomic<bool> may_end = false;
  ChildGroup group(1, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    while (!may_end) std::this_thread::yield();
    return true;
  });
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  submit(group, words[0]);
  group.on_poll = [&] { may_end = may_end || !group.driver->own_thread().is_own_thread(); };
  bool is_stopped = false;
  group.on_take = [&] {
    if (group.driver->flags().open_runs || is_stopped) return;
    is_stopped = true;  // stops the driver, as another thread could, before the waiting thread
                        // continues
    group.child(0).stop();
    group.driver->stop(group.driver->add_cause("closed"));
  };
  group.driver->run_end();
  group.on_take = nullptr;
  CHECK(is_stopped);
  CHECK(group.driver->ask()->core.engine->failures().empty());
}

TEST(an_interrupted_run_ends_even_if_a_child_exit_is_reported_late) {
  ChildGroup group(1, 4, fold);
  group.child(0).stop();
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  submit(group, words[0]);
  CHECK(group.driver->ask()->core.progress.start(0));  // so the task cannot be taken back
  group.on_poll = [] { throw std::runtime_error("interrupted"); };
  int asked = 0;
  group.on_end = [&](int32_t) {
    if (++asked < 5) throw std::runtime_error("interrupted again");
  };
  std::string message;
  try {
    group.driver->run_end();
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  CHECK_EQUAL(message, std::string("interrupted"));
  group.on_poll = nullptr;
  group.on_end = nullptr;
  CHECK_EQUAL(asked, 5);
  CHECK(!group.driver->flags().open_runs);
}

TEST(an_unreported_failure_is_dropped_with_its_run) {
  std::atomic<bool> has_failed = false;
  ChildGroup group(1, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    while (!has_failed) std::this_thread::yield();
    return true;
  });
  group.on_poll = [&] {
    if (!group.driver->own_thread().is_own_thread() || has_failed.exchange(true)) return;
    throw std::runtime_error("of the first run");
  };
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 0);
  submit(group, task);
  for (int i = 0; !has_failed || statistics_of(group.driver->ask()->core).tasks.finished == 0;
       ++i) {
    CHECK(i < kSoonMs);
    group.give_up();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.take();
  }
  group.driver->run_end();  // the run is already over, so the call does not wait
  group.driver->run_begin(Hazards::kRaw);
  CHECK(group.driver->wait(submit(group, task), UINT64_MAX));
  group.driver->run_end();
}

// Invariant: No thread waits for the driver role while it holds the GIL, because the thread with
// the role may wait for the GIL.
//
// ThreadSanitizer reports a lock order inversion after it has seen only one of the two orders.
TEST(a_failure_of_the_drivers_thread_is_kept_without_the_host) {
  static std::atomic<bool> is_in_event, has_asked;
  is_in_event = has_asked = false;
  struct SlowEngine : Engine {
    using Engine::Engine;
    void completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause,
                    Instructions& out) override {
      const bool is_first = !is_in_event.exchange(true);
      for (int i = 0; is_first && !has_asked && i < kSoonMs; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      Engine::completion(child, count, outcome, cause, out);
    }
  };
  std::atomic<bool> is_submitted = false;
  std::atomic<bool> may_fail = false;
  std::atomic<bool> has_failed = false;
  const auto body = [&](int32_t, const pto_frame&, const uint64_t* data, std::string*) {
    while (!(scalar_of(data) == 0 ? is_submitted : has_failed)) std::this_thread::yield();
    return true;
  };
  ChildGroup group(1, 4, body, false, 1 << 16, [](const Configuration& configuration) {
    return std::make_unique<SlowEngine>(configuration);
  });
  group.on_poll = [&] {
    if (!group.driver->own_thread().is_own_thread() || !may_fail || has_failed.exchange(true))
      return;
    throw std::runtime_error("of the look");
  };
  const auto wait_for = [&](const std::atomic<bool>& flag) {
    group.give_up();
    for (int i = 0; !flag; ++i) {
      CHECK(i < kSoonMs);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    group.take();
  };
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  for (const uint64_t scalar : {0, 1}) {
    Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, scalar);
    submit(group, task);
  }
  is_submitted = true;
  wait_for(is_in_event);
  group.on_give_up = [&] {
    has_asked = true;
  };  // the query waits for the role, and then, with the role, for the host
  statistics_of(group.driver->ask()->core);
  group.on_give_up = nullptr;
  CHECK(has_asked);
  may_fail = true;
  wait_for(has_failed);
  try {
    group.driver->run_end();
  } catch (const std::runtime_error& error) {
    CHECK_EQUAL(std::string(error.what()), std::string("of the look"));
  }
}

TEST(a_run_that_is_stopped_during_its_end_reports_the_stop) {
  std::atomic<bool> has_polled = false;
  ChildGroup group(1, 4, fold);
  group.child(0).stop();  // frames that are sent to it stay in flight
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 0);
  submit(group, task);
  group.on_poll = [&] { has_polled = has_polled || !group.driver->own_thread().is_own_thread(); };
  std::atomic<int> refused = 0;
  std::thread ending([&] {
    group.take();
    try {
      group.driver->run_end();
    } catch (const Refusal& refusal) {
      refused += refusal.kind == Refusal::Kind::kClosed;
    }
    group.give_up();
  });
  for (int i = 0; !has_polled; ++i) {  // the thread waits
    CHECK(i < kSoonMs);
    group.give_up();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.take();
  }
  group.driver->stop(group.driver->add_cause("closed"));
  group.give_up();
  ending.join();
  group.take();
  CHECK_EQUAL(refused.load(), 1);
}

// Invariant: An interrupted run starts no more tasks, gives running tasks limited time, and leaves
// the Worker usable.
TEST(an_interrupted_run_cancels_and_stays_usable) {
  std::atomic<bool> may_end = false;
  ChildGroup group(1, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    while (!may_end) std::this_thread::yield();
    return true;
  });
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  for (int i = 0; i < 20; ++i) {
    Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 0);
    submit(group, task);
  }
  group.on_poll = [&] {
    if (group.driver->own_thread().is_own_thread()) return;
    group.on_poll = [&] { may_end = true; };
    throw std::runtime_error("interrupted");
  };
  std::string message;
  try {
    group.driver->run_end();
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  CHECK_EQUAL(message, std::string("interrupted"));
  CHECK(!group.driver->flags().open_runs);
  CHECK(group.driver->ask()->core.engine->poisonings().size() >= 10);
  group.on_poll = nullptr;
  may_end = true;  // if the child had begun no task, the run ended without a second poll
  group.driver->run_begin(Hazards::kRaw);
  Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 0);
  const int64_t number = submit(group, task);
  CHECK(group.driver->wait(number, UINT64_MAX));
  group.driver->run_end();
  CHECK_EQUAL(group.driver->ask()->core.engine->failures().size(), size_t{0});
}

TEST(runs_of_two_threads_have_their_own_ends_and_failures) {
  ChildGroup group(2, 16, [](int32_t, const pto_frame&, const uint64_t* data, std::string*) {
    return scalar_of(data) != 7;
  });
  constexpr uint64_t kEach = 20;
  std::vector<uint64_t> words(2 * kEach);
  const auto make_runs = [&](uint64_t first, bool fails) {
    for (int round = 0; round < 100; ++round) {
      const auto run = group.driver->run_begin(Hazards::kRaw);
      for (uint64_t i = 0; i < kEach; ++i) {
        const auto address = reinterpret_cast<uintptr_t>(&words[first + i]);
        Task task(address, 8, Tag::kInout, fails && i == 5 ? 7 : 0);
        submit(group, task, -1, 0, 0, run.get());
      }
      group.driver->run_end(false, run);
      CHECK(run->is_over);
      CHECK_EQUAL(run->counts.finished, static_cast<int64_t>(kEach));
      CHECK_EQUAL(run->failed.size(), static_cast<size_t>(fails));
    }
  };
  std::thread other([&] {
    group.take();
    make_runs(0, true);
    group.give_up();
  });
  make_runs(kEach, false);
  group.give_up();
  other.join();
  group.take();
  CHECK_EQUAL(group.driver->flags().open_runs.load(), 0u);
}

TEST(a_cancelled_run_ends_before_the_tasks_of_another_run) {
  std::atomic<int> ran = 0;
  std::atomic<bool> may_end = false;
  ChildGroup group(1, 16, [&](int32_t, const pto_frame&, const uint64_t* data, std::string*) {
    while (scalar_of(data) == 1 && !may_end) std::this_thread::yield();
    ran += 1;
    return true;
  });
  std::vector<uint64_t> words(8);
  const auto kept = group.driver->run_begin(Hazards::kRaw);
  const auto cancelled = group.driver->run_begin(Hazards::kRaw);
  for (uint64_t i = 0; i < words.size(); ++i) {
    Task task(reinterpret_cast<uintptr_t>(&words[i]), 8, Tag::kInout, i == 0);
    submit(group, task, -1, 0, 0, i % 2 ? cancelled.get() : kept.get());
  }
  group.driver->cancel(group.driver->add_cause("cancelled"), cancelled.get());
  group.driver->run_end(false, cancelled);
  CHECK_EQUAL(cancelled->poisoned.size(), words.size() / 2);
  CHECK(!kept->is_over);
  may_end = true;
  group.driver->run_end(false, kept);
  CHECK_EQUAL(ran.load(), static_cast<int>(words.size() / 2));
  CHECK(kept->poisoned.empty());
}
