// Tests of the driver with its engine. The children are threads of this process.
#include "driver/driver.hpp"

#include <chrono>
#include <random>

#include "check.hpp"
#include "driver/child_group.hpp"
#include "driver/tasks.hpp"

namespace {

constexpr int64_t kTasks = check::kIsSanitized ? 25'000 : 100'000;

}  // namespace

TEST(many_chains_give_the_sequential_answer) {
  std::vector<uint64_t> words(64), expected(64);
  ChildGroup group(3, 32, fold);
  std::mt19937 random(1);
  const int64_t count = kTasks;
  for (int64_t done = 0; done < count;) {
    group.driver->run_begin(Hazards::kRaw);
    const int64_t length = std::min<int64_t>(count - done, 1 + random() % 5000);
    for (int64_t i = 0; i < length; ++i) {
      const size_t place = random() % words.size();
      const uint64_t value = random() % 1000;
      expected[place] = expected[place] * 3 + value;
      Task task(reinterpret_cast<uintptr_t>(&words[place]), 8, Tag::kInout, value);
      const int32_t pin = random() % 4 == 0 ? static_cast<int32_t>(random() % 3) : -1;
      submit(group, task, pin);
    }
    group.driver->run_end();
    CHECK_EQUAL(statistics_of(group.driver->ask()->core).tasks.finished, length);
    CHECK_EQUAL(statistics_of(group.driver->ask()->core).waiting, uint64_t{0});
    done += length;
  }
  for (size_t i = 0; i < words.size(); ++i) CHECK_EQUAL(words[i], expected[i]);
}

TEST(a_failure_poisons_its_consumers_and_has_a_cause) {
  std::vector<uint64_t> words(8);
  ChildGroup group(2, 16, [](int32_t, const pto_frame&, const uint64_t* data, std::string* text) {
    *word_of(data) += 1;
    *text = "broke at " + std::to_string(scalar_of(data));
    return scalar_of(data) != 7;
  });
  for (int round = 0; round < 200; ++round) {
    group.driver->run_begin(Hazards::kRaw);
    int64_t failing = -1;
    for (uint64_t i = 0; i < 40; ++i) {
      Task task(reinterpret_cast<uintptr_t>(&words[i % 4]), 8, Tag::kInout, i);
      const int64_t number = submit(group, task, static_cast<int32_t>(i / 4 % 2));
      if (i == 7) failing = number;
    }
    group.driver->run_end();
    const auto failures = group.driver->ask()->core.engine->failures();
    CHECK_EQUAL(failures.size(), size_t{1});
    CHECK_EQUAL(failures[0].first, failing);
    CHECK_EQUAL(group.driver->ask()->core.book.cause(failures[0].second)->data,
                std::string("broke at 7"));
    CHECK_EQUAL(group.driver->ask()->core.engine->poisonings().size(), size_t{8});
    CHECK_EQUAL(statistics_of(group.driver->ask()->core).tasks.poisoned, int64_t{8});
    const auto& ended = group.driver->ask()->core.book.outcomes()->ended;
    CHECK_EQUAL(ended.at(failing + 4).root, failing);
  }
}

// Invariant: No task is lost with its child: answers and progress marks count, and the other tasks
// fail or run again, after their changed regions were restored.
TEST(repeated_losses_of_a_child_lose_no_task) {
  std::vector<uint64_t> words(16), expected(16);
  ChildGroup group(3, 16, fold, true);
  std::mt19937 random(2);
  const int64_t rounds = kTasks / 5000;
  for (int64_t round = 0; round < rounds; ++round) {
    group.driver->run_begin(Hazards::kRaw);
    for (int i = 0; i < 2000; ++i) {
      const size_t place = random() % words.size();
      expected[place] = expected[place] * 3 + 1;
      Task task(reinterpret_cast<uintptr_t>(&words[place]), 8, Tag::kInout, 1);
      submit(group, task, -1, 1000);
      if (random() % 400 == 0) group.kill(static_cast<int32_t>(random() % 3), true);
    }
    group.driver->run_end();
    CHECK_EQUAL(group.driver->ask()->core.engine->failures().size(), size_t{0});
  }
  for (size_t i = 0; i < words.size(); ++i) CHECK_EQUAL(words[i], expected[i]);
}

// Return a body like fold(), in which the first two attempts of every third task fail.
Body fold_with_failures(std::vector<std::atomic<int>>& attempts) {
  return [&](int32_t child, const pto_frame& frame, const uint64_t* data, std::string* text) {
    fold(child, frame, data, text);
    return frame.number % 3 != 0 || ++attempts[frame.number] > 2;
  };
}

TEST(tasks_that_wait_before_an_attempt_run_again_with_restored_regions) {
  std::vector<uint64_t> words(16), expected(16);
  std::vector<std::atomic<int>> attempts(10'000);
  ChildGroup group(2, 16, fold_with_failures(attempts), true);
  for (int32_t child = 0; child < 2; ++child) group.child(child).retry_wait_ms = 1 + 2 * child;
  for (int round = 0; round < 10; ++round) {
    group.driver->run_begin(Hazards::kRaw);
    for (size_t i = 0; i < 60; ++i) {
      expected[i % 16] = expected[i % 16] * 3 + i;
      Task task(reinterpret_cast<uintptr_t>(&words[i % 16]), 8, Tag::kInout, i);
      submit(group, task, -1, 100);
      if (i % 20 == 19) group.kill(static_cast<int32_t>(i / 20 % 2), true);
    }
    group.driver->run_end();
    CHECK_EQUAL(group.driver->ask()->core.engine->failures().size(), size_t{0});
    CHECK(group.driver->ask()->core.delays.is_empty());
  }
  for (size_t i = 0; i < words.size(); ++i) CHECK_EQUAL(words[i], expected[i]);
}

TEST(a_cancelled_run_ends_the_waits_of_its_tasks) {
  std::vector<std::atomic<int>> attempts(10'000);
  uint64_t word = 0, other = 0;
  ChildGroup group(1, 16, fold_with_failures(attempts));
  group.child(0).retry_wait_ms = 1'000'000;
  for (int round = 0; round < 20; ++round) {
    group.driver->run_begin(Hazards::kRaw);
    Task task(reinterpret_cast<uintptr_t>(&word), 8, Tag::kInout, 1);
    const int64_t delayed = submit(group, task, -1, 100);
    CHECK_EQUAL(delayed % 3, int64_t{0});
    CHECK(group.driver->wait(submit(group, other), UINT64_MAX));  // it runs during the wait
    submit(group, other);
    CHECK(!group.driver->ask()->core.book.has_ended(delayed));
    group.driver->cancel(group.driver->add_cause("cancelled"));
    group.driver->run_end();
    CHECK_EQUAL(attempts[static_cast<size_t>(delayed)].load(), 1);
  }
}

TEST(a_task_that_may_not_run_again_uses_no_retries) {
  std::vector<std::atomic<int>> attempts(100);
  uint64_t word = 0;
  ChildGroup group(1, 16, fold_with_failures(attempts));
  group.child(0).retry_wait_ms = kNeverAgain;
  group.driver->run_begin(Hazards::kRaw);
  Task task(reinterpret_cast<uintptr_t>(&word), 8, Tag::kInout, 1);
  submit(group, task, -1, 100);
  group.driver->run_end();
  CHECK_EQUAL(group.driver->ask()->core.engine->failures().size(), size_t{1});
  CHECK_EQUAL(attempts[0].load(), 1);
}

// Invariant: One thread at a time drives a Worker. No thread waits for the driver role, or sleeps,
// with the GIL.
TEST(the_drivers_thread_drives_while_the_program_does_other_work) {
  std::vector<uint64_t> words(4);
  std::atomic<int> ran = 0;
  ChildGroup group(2, 16, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    ran += 1;
    return true;
  });
  for (int round = 0; round < 20; ++round) {
    group.driver->run_begin(Hazards::kRaw);
    const int before = ran;
    for (uint64_t i = 0; i < 12; ++i) {
      Task task(reinterpret_cast<uintptr_t>(&words[i % 4]), 8, Tag::kInout, i);
      submit(group, task, static_cast<int32_t>(i % 2));
    }
    for (int i = 0; ran < before + 12; ++i) {
      CHECK(i < kSoonMs);
      group.give_up();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      group.take();
    }
    if (round % 3 == 0) {
      group.driver->park();
      group.driver->own_thread().unpark();
    }
    group.driver->run_end();
  }
}

TEST(the_drivers_thread_drives_again_after_a_sleep) {
  std::atomic<int> ran = 0;
  ChildGroup group(1, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    ran += 1;
    return true;
  });
  std::vector<uint64_t> words(1);
  for (int round = 0; round < 2; ++round) {
    group.driver->run_begin(Hazards::kRaw);
    for (int i = 0; i < 9; ++i) submit(group, words[0]);
    for (int i = 0; ran < 9 * (round + 1); ++i) {
      CHECK(i < kSoonMs);
      group.give_up();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      group.take();
    }
    group.driver->run_end();
    if (round == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  }
}

TEST(a_run_wakes_the_child_that_began_the_last_one) {
  ChildGroup group(2, 4, fold);
  std::vector<uint64_t> words(1);
  const auto run = [&](int32_t pin) {
    Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 1);
    submit(group, task, pin);
    group.driver->run_end();
  };
  const auto sleeps = [&](int32_t child) {
    return pto::engine::has_sleepers(&group.progress().child(child).bell);
  };
  group.driver->run_begin(Hazards::kRaw);
  run(1);
  for (int i = 0; !sleeps(0) || !sleeps(1); ++i) {
    CHECK(i < kSoonMs);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto rung = [&](int32_t child) {
    return __atomic_load_n(&group.progress().child(child).bell.rung, __ATOMIC_SEQ_CST);
  };
  const uint32_t first = rung(0), second = rung(1);
  group.driver->run_begin(Hazards::kRaw);
  CHECK_EQUAL(rung(0), first);
  CHECK_EQUAL(rung(1), second + 1);
  run(0);
}

// Invariant: At a fork, the driver's own thread is at a safe point, even if it forks itself.
TEST(the_host_may_fork_from_the_thread_of_the_driver) {
  std::atomic<bool> was_parked = false;
  ChildGroup group(1, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    while (!was_parked) std::this_thread::yield();
    return true;
  });
  group.on_poll = [&] {
    group.driver->park();
    group.driver->own_thread().unpark();
    was_parked = true;
  };
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 0);
  submit(group, task);
  for (int i = 0; !was_parked; ++i) {
    CHECK(i < kSoonMs);
    group.give_up();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.take();
  }
  group.driver->run_end();
}

TEST(a_fork_does_not_wait_for_a_thread_of_the_driver_that_has_ended) {
  std::atomic<bool> is_closed = false;
  ChildGroup group(1, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    while (!is_closed) std::this_thread::yield();
    return true;
  });
  group.on_poll = [&] {  // as in a host call that drops the last reference to a Worker
    if (group.driver->own_thread().is_own_thread()) {
      group.driver->close();
      is_closed = true;
    }
  };
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 0);
  submit(group, task);
  for (int i = 0; !is_closed; ++i) {
    CHECK(i < kSoonMs);
    group.give_up();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.take();
  }
  std::atomic<bool> has_forked = false;
  std::thread forking([&] {
    group.take();
    group.driver->park();
    group.driver->own_thread().unpark();
    has_forked = true;
    group.give_up();
  });
  group.give_up();
  for (int i = 0; !has_forked; ++i) {
    CHECK(i < kSoonMs);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  forking.join();
  group.take();
}

TEST(a_task_past_its_deadline_ends_its_child_and_runs_again) {
  std::vector<uint64_t> words(1, 5);
  std::atomic<int> attempts = 0;
  ChildGroup* all = nullptr;
  ChildGroup group(
      2, 16,
      [&](int32_t child, const pto_frame&, const uint64_t* data, std::string*) {
        *word_of(data) += 1;
        if (attempts.fetch_add(1) > 0) return true;
        while (!all->child(child).is_stopping()) std::this_thread::yield();
        return true;
      },
      true);
  all = &group;
  group.driver->run_begin(Hazards::kRaw);
  Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 0);
  submit(group, task, -1, 1, 500);
  group.driver->run_end();
  CHECK_EQUAL(group.ended, 1);
  CHECK_EQUAL(attempts.load(), 2);
  CHECK_EQUAL(words[0], uint64_t{6});  // its region was restored
  CHECK_EQUAL(group.driver->ask()->core.engine->failures().size(), size_t{0});
}

TEST(a_replay_that_stops_in_a_scope_ends_and_releases_its_graph) {
  ChildGroup group(1, 4, fold, false, 4096);
  auto graph = std::make_shared<CapturedGraph>();
  graph->bases = {0};
  graph->first_patch = {0, 0};
  graph->steps = {{CapturedStep::What::kScopeBegin, 0, kNoBase, 0},
                  {CapturedStep::What::kAllocate, 0, 0, 8192},
                  {CapturedStep::What::kScopeEnd, 0, kNoBase, 0}};
  const std::weak_ptr<CapturedGraph> held = graph;
  group.driver->run_begin(Hazards::kRaw);
  bool was_refused = false;
  try {
    group.driver->replay(std::move(graph), true);
  } catch (const Refusal&) {
    was_refused = true;
  }
  CHECK(was_refused);
  CHECK_EQUAL(group.driver->ask()->core.book.outcomes()->depth, uint32_t{1});
  CHECK(!held.expired());
  group.driver->cancel(group.driver->add_cause({}));
  group.driver->run_end();
  CHECK(!group.driver->flags().open_runs);
  CHECK(held.expired());
  group.driver->run_begin(Hazards::kRaw);
  group.driver->run_end();
}

TEST(tasks_behind_a_long_one_run_on_the_idle_child) {
  std::atomic<int> ran = 0;
  ChildGroup group(2, 16, [&](int32_t, const pto_frame&, const uint64_t* data, std::string*) {
    while (scalar_of(data) == 1 && ran < 12) std::this_thread::yield();
    ran += scalar_of(data) == 0;
    return true;
  });
  std::vector<uint64_t> words(13);
  group.driver->run_begin(Hazards::kRaw);
  for (uint64_t i = 0; i < 13; ++i) {
    Task task(reinterpret_cast<uintptr_t>(&words[i]), 8, Tag::kInout, i == 0);
    submit(group, task);
  }
  group.driver->run_end();
  CHECK_EQUAL(ran.load(), 12);
}

TEST(a_cancelled_task_does_not_run_and_its_consumers_are_poisoned) {
  std::atomic<bool> may_end = false;
  std::atomic<int> ran = 0;
  ChildGroup group(2, 16, [&](int32_t, const pto_frame&, const uint64_t* data, std::string*) {
    while (scalar_of(data) == 1 && !may_end) std::this_thread::yield();
    ran += scalar_of(data) != 1;
    return true;
  });
  std::vector<uint64_t> words(2);
  group.driver->run_begin(Hazards::kRaw);
  const auto submit_to = [&](size_t word, uint64_t value, int32_t pin) {
    Task task(reinterpret_cast<uintptr_t>(&words[word]), 8, Tag::kInout, value);
    return submit(group, task, pin);
  };
  submit_to(0, 1, 0);
  const int64_t behind = submit_to(1, 0, 0);
  submit_to(1, 0, 0);  // sent before its producer has ended
  const int64_t last = submit_to(1, 0, 1);
  const int64_t cause = group.driver->add_cause("cancelled");
  CHECK(group.driver->ask()->withdrawals.cancel(behind, cause));
  CHECK(group.driver->wait(behind, UINT64_MAX));  // while the first task runs
  may_end = true;
  CHECK(group.driver->wait(last, UINT64_MAX));
  CHECK(!group.driver->ask()->withdrawals.cancel(last, cause));
  group.driver->run_end();
  CHECK_EQUAL(ran.load(), 0);
  CHECK_EQUAL(group.driver->ask()->core.engine->failures().size(), size_t{1});
  CHECK_EQUAL(group.driver->ask()->core.engine->failures()[0].first, behind);
  CHECK_EQUAL(group.driver->ask()->core.engine->poisonings().size(), size_t{2});
}

TEST(frames_of_a_cancelled_run_are_skipped_in_the_next_run) {
  std::atomic<int> ran = 0;
  std::atomic<bool> may_end = false;
  ChildGroup group(1, 16, [&](int32_t, const pto_frame&, const uint64_t* data, std::string*) {
    while (scalar_of(data) == 1 && !may_end) std::this_thread::yield();
    ran += 1;
    return true;
  });
  std::vector<uint64_t> words(10);
  group.driver->run_begin(Hazards::kRaw);
  for (uint64_t i = 0; i < 10; ++i) {
    Task task(reinterpret_cast<uintptr_t>(&words[i]), 8, Tag::kInout, i == 0);
    submit(group, task);
  }
  const int64_t first = group.driver->ask()->core.book.next_task() - 10;
  CHECK(!group.driver->wait(first, 20'000'000));
  group.driver->cancel(group.driver->add_cause("cancelled"));
  may_end = true;
  group.driver->run_end();
  CHECK_EQUAL(ran.load(), 1);
  group.driver->run_begin(Hazards::kRaw);
  submit(group, words[0]);
  group.driver->run_end();
  CHECK_EQUAL(ran.load(), 2);
}

TEST(a_child_that_dies_between_skip_and_answer_loses_no_other_task) {
  std::atomic<bool> may_end = false;
  ChildGroup group(2, 4, [&](int32_t child, const pto_frame&, const uint64_t*, std::string*) {
    while (child == 0 && !may_end) std::this_thread::yield();
    return child != 0;
  });
  std::vector<uint64_t> words(1);
  group.child(1).dies_of_skip = true;
  group.driver->run_begin(Hazards::kRaw);
  Task first(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 0);
  Task second(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 0);
  const int64_t failing = submit(group, first, 0);
  const int64_t skipped = submit(group, second, 1);
  CHECK(!group.driver->wait(skipped, 1'000'000));  // it was sent before its producer had ended
  CHECK_EQUAL(statistics_of(group.driver->ask()->core).in_flight, uint64_t{2});
  may_end = true;
  CHECK(group.driver->wait(failing, UINT64_MAX));
  for (int i = 0; !group.child(1).has_died; ++i) {
    CHECK(i < kSoonMs);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  group.kill(1, false);
  group.driver->run_end();
  CHECK_EQUAL(group.driver->ask()->core.engine->failures().size(), size_t{1});
  CHECK_EQUAL(group.driver->ask()->core.engine->failures()[0].first, failing);
  CHECK_EQUAL(group.driver->ask()->core.engine->poisonings().size(), size_t{1});
}

// A child that receives frames and answers none, like a relay. The test writes the progress table
// in its place.
struct Relay {
  ChildGroup group;
  std::vector<uint64_t> words;
  std::vector<std::unique_ptr<Task>> tasks;
  std::vector<int64_t> numbers;
  std::atomic<int> runs{0};

  explicit Relay(size_t count)
      : group(
            2, 16,
            [this](int32_t child, const pto_frame&, const uint64_t*, std::string*) {
              if (child == 1) runs += 1;
              while (child == 0 && !group.child(0).is_stopping()) std::this_thread::yield();
              return true;
            },
            true),
        words(count) {
    group.child(0).receives_only = true;
  }

  void submit_to_relay(int32_t retries, uint32_t timeout_ms) {
    for (uint64_t& word : words) {
      tasks.push_back(
          std::make_unique<Task>(reinterpret_cast<uintptr_t>(&word), 8, Tag::kInout, 1));
      constexpr int32_t kRelay = 0;
      const Member member{{&tasks.back()->key, 1}, {&tasks.back()->tensor, 1}, {}};
      Submission submission;
      submission.kind = Kind::kSub;
      submission.callable = group.noop;
      submission.members = {&member, 1};
      submission.pins = {&kRelay, 1};
      submission.is_hint = true;
      submission.retries = retries;
      submission.timeout_ms = timeout_ms;
      numbers.push_back(group.driver->submit(submission));
    }
  }
  size_t failures() { return group.driver->ask()->core.engine->failures().size(); }
};

// Invariant: Frames that a lost child had passed on to another host count as begun, and those that
// it had only received do not.
TEST(frames_passed_on_count_as_begun_and_others_run_on_another_child) {
  Relay relay(5);
  relay.group.driver->run_begin(Hazards::kRaw);
  relay.submit_to_relay(0, 0);
  relay.group.progress().pass_on(0, 3);
  relay.group.progress().start_elsewhere(0, 1, pto::engine::monotonic_ns());
  relay.group.kill(0, false);
  relay.group.driver->run_end();
  CHECK_EQUAL(relay.failures(), size_t{3});
  for (size_t i = 0; i < 3; ++i)
    CHECK_EQUAL(relay.group.driver->ask()->core.engine->failures()[i].first, relay.numbers[i]);
  CHECK_EQUAL(relay.runs.load(), 2);
}

TEST(frames_that_were_passed_on_use_up_a_retry) {
  Relay relay(3);
  relay.group.driver->run_begin(Hazards::kRaw);
  relay.submit_to_relay(1, 0);
  relay.group.progress().pass_on(0, 3);
  relay.group.kill(0, false);
  relay.group.driver->run_end();
  CHECK_EQUAL(relay.failures(), size_t{0});
  CHECK_EQUAL(relay.runs.load(), 3);
}

// Invariant: A time limit counts from the start of the task on the other host, never from that of
// an earlier task.
TEST(a_time_limit_counts_from_the_start_that_a_relay_reports) {
  constexpr uint64_t kHourNs = 3'600'000'000'000;
  Relay relay(3);
  relay.group.driver->run_begin(Hazards::kRaw);
  relay.submit_to_relay(0, 1'800'000);
  const ProgressTable progress = relay.group.progress();
  const uint64_t now = pto::engine::monotonic_ns();
  const auto is_late = [&] {
    const Role role = relay.group.driver->ask();
    role->exchange.check_deadlines();
    return std::any_of(role->core.actions.begin(), role->core.actions.end(),
                       [](const Action& action) { return action.cause != kNone; });
  };
  progress.pass_on(0, 3);
  CHECK(!is_late());  // none has begun
  progress.start_elsewhere(0, 1, now + kHourNs);
  CHECK(!is_late());  // the clock of the other host is ahead
  progress.start_elsewhere(0, 2, now - kHourNs);
  progress.complete(0, true);
  progress.complete(0, true);
  CHECK(!is_late());  // this task and the first have ended
  progress.complete(0, true);
  CHECK(!is_late());  // never started here
  relay.group.kill(0, false);
  relay.group.driver->run_end();
  CHECK_EQUAL(relay.failures(), size_t{0});
}

TEST(a_task_that_began_too_long_ago_on_the_other_host_ends_the_relay) {
  Relay relay(2);
  relay.group.driver->run_begin(Hazards::kRaw);
  relay.submit_to_relay(0, 1'000);
  relay.group.progress().pass_on(0, 1);
  relay.group.progress().start_elsewhere(0, 1, pto::engine::monotonic_ns() - 2'000'000'000);
  relay.group.on_end = [&](int32_t child) {
    CHECK_EQUAL(child, 0);
    relay.group.child(0).receives_only = false;
  };
  relay.group.driver->run_end();
  CHECK_EQUAL(relay.group.ended, 1);
  CHECK_EQUAL(relay.failures(), size_t{1});
}

// Invariant: Only a child that sends an invalid answer is ended for it, and the exit of a child is
// never attributed to its successor.
TEST(an_impossible_report_ends_only_the_child_that_sent_it) {
  ChildGroup group(2, 4, fold);
  std::vector<uint64_t> words(2);
  group.child(0).lies = true;
  group.driver->run_begin(Hazards::kRaw);
  for (int32_t child = 0; child < 2; ++child) {
    Task task(reinterpret_cast<uintptr_t>(&words[static_cast<size_t>(child)]), 8, Tag::kInout, 1);
    submit(group, task, child);
  }
  group.driver->run_end();
  CHECK(group.broken.find("skipped frame 1") != std::string::npos);
  CHECK_EQUAL(group.driver->ask()->core.engine->failures().size(), size_t{1});
  CHECK_EQUAL(words[1], uint64_t{1});
}

TEST(the_exit_of_a_child_that_was_restarted_meanwhile_is_not_requested) {
  std::atomic<bool> is_over = false;
  ChildGroup group(2, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    while (!is_over) std::this_thread::yield();
    return true;
  });
  group.on_end = [&](int32_t child) {
    is_over = true;
    group.kill(1 - child, true);
  };
  std::vector<uint64_t> words(2);
  group.driver->run_begin(Hazards::kRaw);
  for (int32_t child = 0; child < 2; ++child) {
    Task task(reinterpret_cast<uintptr_t>(&words[static_cast<size_t>(child)]), 8, Tag::kInout, 1);
    submit(group, task, child, 0, 200);
  }
  group.driver->run_end();
  CHECK_EQUAL(group.ended, 1);
}

// Invariant: While tasks of a run are alive, the driver checks its children every 50 ms.
TEST(children_are_checked_while_the_program_only_submits) {
  ChildGroup group(1, 4, fold);
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  for (int i = 0; group.looks < 3; ++i) {
    CHECK(i < 100 * kSoonMs);
    submit(group, words[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  group.driver->run_end();
}

TEST(queries_do_not_keep_the_drivers_thread_from_driving) {
  std::atomic<int> ran = 0;
  ChildGroup group(1, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    ran += 1;
    return true;
  });
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  for (int i = 0; i < 9; ++i) submit(group, words[0]);
  for (int i = 0; ran < 9; ++i) {
    CHECK(i < 10 * kSoonMs);
    statistics_of(group.driver->ask()->core);
    group.driver->ask()->core.engine->failures();
    const int64_t cause = group.driver->add_cause("why");
    group.driver->ask()->core.book.cause(cause);
    group.give_up();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    group.take();
  }
  group.driver->run_end();
}

// Invariant: Closing ends an open run: waiters return, later submits and waits are refused, and
// memory is freed when no thread is in the driver.
TEST(a_stopped_driver_ends_all_waits_and_refuses_new_calls) {
  std::atomic<bool> may_end = false;
  ChildGroup group(2, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    while (!may_end) std::this_thread::yield();
    return true;
  });
  std::vector<uint64_t> words(1);
  group.driver->run_begin(Hazards::kRaw);
  group.driver->scope_begin();
  int64_t last = kNone;
  for (int i = 0; i < 20; ++i) last = submit(group, words[0]);
  std::atomic<int> came_back = 0;
  std::thread waiting([&] {
    group.take();
    CHECK(group.driver->wait(last, UINT64_MAX));
    came_back += 1;
    group.give_up();
  });
  CHECK(!group.driver->wait(last, 5'000'000));
  may_end = true;
  group.child(0).stop();
  group.child(1).stop();
  group.driver->stop(group.driver->add_cause("closed"));
  CHECK(!group.driver->flags().open_runs);
  int refused = 0;
  const auto refuses = [&](auto call) {
    try {
      call();
    } catch (const Refusal& refusal) {
      refused += refusal.kind == Refusal::Kind::kClosed;
    }
  };
  refuses([&] { submit(group, words[0]); });
  refuses([&] { group.driver->scope_end(); });
  refuses([&] { group.driver->run_end(); });
  refuses([&] { group.driver->run_begin(Hazards::kRaw); });
  refuses([&] { group.driver->children().control(0, "hello"); });
  CHECK_EQUAL(refused, 5);
  CHECK(group.driver->ask()->core.book.has_ended(last));
  group.give_up();
  waiting.join();
  group.take();
  CHECK_EQUAL(came_back.load(), 1);
}

TEST(causes_are_dropped_with_their_runs_unless_later_tasks_need_them) {
  ChildGroup group(2, 4, fold);
  std::vector<uint64_t> words(1);
  group.kill(0, false);
  const int64_t first = group.driver->add_cause("first");
  std::shared_ptr<RunOutcomes> outcomes;
  for (int i = 0; i < 3; ++i) {
    group.driver->run_begin(Hazards::kRaw);
    Task task(reinterpret_cast<uintptr_t>(&words[0]), 8, Tag::kInout, 1);
    submit(group, task, 0);
    group.driver->run_end();
    const auto failures = group.driver->ask()->core.engine->failures();
    CHECK_EQUAL(failures.size(), size_t{1});
    CHECK_EQUAL(group.driver->ask()->core.book.cause(failures[0].second)->data,
                std::string("killed"));
    if (!outcomes) outcomes = group.driver->ask()->core.book.outcomes();
  }
  CHECK(!group.driver->ask()->core.book.cause(first));
  CHECK_EQUAL(outcomes->causes.size(), size_t{1});
}

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
