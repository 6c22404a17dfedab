// Requests to children: control frames between the frames of tasks, and their replies.
#include "check.hpp"
#include "driver/child_group.hpp"
#include "driver/tasks.hpp"

// Invariant: Control frames keep their order among the tasks of a child.
TEST(control_frames_keep_their_order_and_are_answered) {
  std::vector<uint64_t> words(1);
  ChildGroup group(1, 8, fold);
  group.driver->run_begin(Hazards::kRaw);
  std::vector<uint64_t> replies;
  for (int i = 0; i < 50; ++i) {
    submit(group, words[0]);
    replies.push_back(group.driver->children().control(0, "hello " + std::to_string(i)));
  }
  for (int i = 0; i < 50; ++i) {
    std::string text;
    const auto state =
        group.driver->children().reply(replies[static_cast<size_t>(i)], UINT64_MAX, &text);
    CHECK(state == ReplyState::kGiven);
    CHECK_EQUAL(text, "hello " + std::to_string(i));
  }
  group.driver->run_end();
  CHECK_EQUAL(group.broken, std::string());
}

TEST(control_frames_that_a_lost_child_did_not_receive_are_not_sent_to_the_next_one) {
  ChildGroup group(1, 8, fold);
  group.child(0).receives_only = true;
  std::vector<uint64_t> lost;
  for (int i = 0; i < 60; ++i) lost.push_back(group.driver->children().control(0, "old"));
  group.child(0).stop();
  group.child(0).receives_only = false;
  group.kill(0, true);
  std::string text;
  const uint64_t last = group.driver->children().control(0, "new");
  CHECK(group.driver->children().reply(last, UINT64_MAX, &text) == ReplyState::kGiven);
  CHECK_EQUAL(text, "new");
  for (const uint64_t number : lost)
    CHECK(group.driver->children().reply(number, 0, &text) == ReplyState::kLost);
}
