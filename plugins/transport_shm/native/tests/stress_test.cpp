// Run both ends at the same time, each in a thread, through rings that are almost always full. No
// frame or answer of any size is lost, duplicated, mixed or reordered, and each sleeping thread is
// woken.

#include <atomic>
#include <thread>

#include "connection.hpp"
#include "pto/engine/bell.hpp"
#include "random.hpp"

namespace {

using pto::engine::Waiter;

struct Plan {
  uint32_t queue_frames;
  uint32_t queue_bytes;
  uint64_t tasks;
  uint64_t failed_one_in;
  uint64_t control_one_in;
  bool merges = true;  // whether one answer reports the success of all visible frames
};

// Return the size of the data of frame or answer `number`. It depends on the number only, so both
// sides can compute it.
uint32_t bytes_of(const Plan& plan, uint64_t number) {
  const uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15u >> 20;
  const uint32_t limit = plan.queue_bytes - sizeof(pto_frame) + 1;
  return static_cast<uint32_t>(mixed % 16 == 0 ? mixed / 16 % limit : mixed % 160 % limit);
}

bool is_control(const Plan& plan, uint64_t number) {
  return number % plan.control_one_in == 0;
}
bool has_failed(const Plan& plan, uint64_t number) {
  return number % plan.failed_one_in == 0;
}

// Wait without a time limit. If a wake-up is lost, the time limit of the test ends the wait.
template <class Ready>
void wait_for(pto_bell* bell, Ready ready) {
  Waiter waiter(bell, nullptr, 1, {.spin_ns = 0, .yield_ns = 2000, .longest_ns = 10'000'000'000});
  CHECK(waiter.wait(ready));
}

class Child {
 public:
  Child(Connection& connection, const Plan& plan) : connection_(connection), plan_(plan) {}

  void run() {
    pto_frame_view views[16];
    while (true) {
      int32_t visible = 0;
      wait_for(&connection_.child_bell(), [&] {
        visible = shm().receive(connection_.child(), views, 16);
        return visible != 0;
      });
      if (visible == PTO_ENDPOINT_CLOSED) break;
      CHECK(visible > 0);
      for (int32_t i = 0; i < visible; ++i) handle(views[i]);
      shm().take(connection_.child(), visible);
      report_successes();  // one answer for all visible frames
    }
    CHECK_EQUAL(received_, plan_.tasks);
  }

 private:
  void handle(const pto_frame_view& view) {
    const uint64_t number = ++received_;
    CHECK_EQUAL(view.frame->number, number);
    CHECK_EQUAL(view.frame->bytes, bytes_of(plan_, number));
    CHECK(has_pattern(view.data, number, view.frame->bytes));
    if (is_control(plan_, number)) {
      report_successes();
      answer(number, PTO_ANSWER_REPLY, 0);
      return;
    }
    ++answered_;
    if (!plan_.merges && !has_failed(plan_, number)) report_successes();
    if (!has_failed(plan_, number)) return;
    answer(answered_, PTO_ANSWER_COMPLETED, PTO_OUTCOME_FAILED);
    reported_ = answered_;
  }

  void report_successes() {
    if (answered_ == reported_) return;
    const pto_answer done = completed(answered_);
    CHECK_EQUAL(shm().answer(connection_.child(), &done), 1);
    reported_ = answered_;
  }

  void answer(uint64_t number, uint16_t kind, uint16_t outcome) {
    const std::vector<uint8_t> data = pattern(number, bytes_of(plan_, number + 7));
    const pto_answer answer{number, data.data(), static_cast<uint32_t>(data.size()), kind, outcome};
    wait_for(&connection_.child_bell(),
             [&] { return shm().answer(connection_.child(), &answer) == 1; });
  }

  Connection& connection_;
  const Plan& plan_;
  uint64_t received_ = 0;
  uint64_t answered_ = 0;  // number of answered task frames
  uint64_t reported_ = 0;
};

class Parent {
 public:
  Parent(Connection& connection, const Plan& plan, uint64_t seed)
      : connection_(connection), plan_(plan), random_(seed) {}

  void run() {
    while (!is_done()) {
      const bool has_sent = send();
      if (!poll() && !has_sent)
        wait_for(&connection_.parent_bell(), [&] { return send() || poll(); });
    }
    connection_.close_parent();
  }

 private:
  bool is_done() const { return sent_ == plan_.tasks && answered_ == tasks_ && replies_.empty(); }

  bool send() {
    pto_frame frames[8];
    pto_frame_view views[8];
    std::vector<uint8_t> data[8];
    const uint64_t left = plan_.tasks - sent_;
    const uint64_t batch = std::min<uint64_t>(1 + random_.below(8), left);
    for (uint64_t i = 0; i < batch; ++i) {
      const uint64_t number = sent_ + 1 + i;
      data[i] = pattern(number, bytes_of(plan_, number));
      frames[i] = task(number, bytes_of(plan_, number));
      if (is_control(plan_, number)) frames[i].kind = PTO_FRAME_CONTROL;
      views[i] = {&frames[i], data[i].data()};
    }
    const int32_t taken = shm().submit(connection_.parent(), views, static_cast<int32_t>(batch));
    CHECK(taken >= 0);
    for (int32_t i = 0; i < taken; ++i) note_sent(++sent_);
    return taken > 0;
  }

  void note_sent(uint64_t number) {
    if (is_control(plan_, number)) {
      replies_.push_back({number, tasks_});
    } else {
      ++tasks_;
      if (has_failed(plan_, number)) failures_.push_back({number, tasks_});
    }
  }

  bool poll() {
    pto_answer answers[8];
    const int32_t count = shm().poll(connection_.parent(), answers, 1 + random_.below(8));
    CHECK(count >= 0);
    for (int32_t i = 0; i < count; ++i) check(answers[i]);
    return count > 0;
  }

  void check(const pto_answer& answer) {
    if (answer.kind == PTO_ANSWER_REPLY) {
      CHECK(!replies_.empty());
      CHECK_EQUAL(answer.number, replies_.front().number);
      // the reply is in order with the answers to tasks
      CHECK_EQUAL(answered_, replies_.front().tasks_before);
      replies_.erase(replies_.begin());
      check_data(answer, answer.number);
      return;
    }
    CHECK(answer.number > answered_);
    CHECK(answer.number <= tasks_);
    const bool is_failure = !failures_.empty() && failures_.front().tasks_before == answer.number;
    if (!failures_.empty()) CHECK(answer.number <= failures_.front().tasks_before);
    CHECK_EQUAL(answer.outcome, is_failure ? PTO_OUTCOME_FAILED : PTO_OUTCOME_SUCCEEDED);
    if (is_failure) {
      check_data(answer, answer.number);
      failures_.erase(failures_.begin());
    }
    answered_ = answer.number;
  }

  void check_data(const pto_answer& answer, uint64_t number) {
    CHECK_EQUAL(answer.bytes, bytes_of(plan_, number + 7));
    CHECK(has_pattern(answer.data, number, answer.bytes));
  }

  struct Awaited {
    uint64_t number;
    uint64_t tasks_before;  // number of task frames before it; for a failure, its own number
  };

  Connection& connection_;
  const Plan& plan_;
  Random random_;
  uint64_t sent_ = 0;   // frames
  uint64_t tasks_ = 0;  // number of task frames among the sent frames
  uint64_t answered_ = 0;
  std::vector<Awaited> replies_;
  std::vector<Awaited> failures_;
};

void run(const Plan& plan, uint64_t seed) {
  Connection connection(plan.queue_frames, plan.queue_bytes);
  std::thread child([&] { Child(connection, plan).run(); });
  Parent(connection, plan, seed).run();
  child.join();
}

constexpr uint64_t kTasks = 100'000;

TEST(small_frames_through_a_large_queue) {
  run({256, 1 << 16, kTasks, 1000, 500}, chosen_seed());
}
TEST(small_frames_through_a_tiny_queue) {
  run({1, 64, kTasks / 4, 50, 30}, chosen_seed());
}
TEST(sizes_up_to_the_limit_wrap_around) {
  run({4, 3000, kTasks / 2, 7, 11}, chosen_seed());
}
TEST(every_second_task_fails_and_each_is_reported) {
  run({64, 1 << 14, kTasks, 2, 1u << 30, false}, chosen_seed());
}
TEST(every_task_fails) {
  run({16, 1024, kTasks / 4, 1, 1u << 30}, chosen_seed());
}
TEST(every_frame_is_a_control_frame) {
  run({16, 1024, kTasks / 4, 1, 1}, chosen_seed());
}

// Invariant: A transport delivers every accepted frame and answer once, complete and in order, for
// all sizes and full queues.
TEST(random_queues) {
  const uint64_t seed = chosen_seed();
  Random random(seed);
  for (int turn = 0; turn < 30; ++turn) {
    const Plan plan{1 + static_cast<uint32_t>(random.below(64)),
                    64 + static_cast<uint32_t>(random.below(5000)), 2000, 1 + random.below(40),
                    1 + random.below(40)};
    run(plan, random.next());
  }
}

TEST(a_child_takes_the_place_of_one_that_is_gone_again_and_again) {
  Connection connection(4, 512);
  Random random(chosen_seed());
  for (int life = 0; life < 200; ++life) {
    const uint64_t last = 1 + random.below(40);
    std::thread child([&] {
      pto_frame_view view{};
      for (uint64_t n = 1; n <= last; ++n) {
        while (shm().receive(connection.child(), &view, 1) == 0) std::this_thread::yield();
        CHECK_EQUAL(view.frame->number, n);
        CHECK(has_pattern(view.data, n, view.frame->bytes));
        shm().take(connection.child(), 1);
        if (n % 3 != 0) continue;
        const pto_answer done = completed(n);
        CHECK_EQUAL(shm().answer(connection.child(), &done), 1);
      }  // the child exits without closing the connection
    });
    for (uint64_t n = 1; n <= last; ++n) {
      while (submit(connection, task(n, n * 13 % 300)) == 0) std::this_thread::yield();
    }
    child.join();
    pto_answer answer{};
    uint64_t answered = 0;
    while (shm().poll(connection.parent(), &answer, 1) == 1) answered = answer.number;
    CHECK_EQUAL(answered, last - last % 3);
    connection.reopen();
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
