// Tests of the contract of each call. One thread calls both ends in turn.

#include <string>

#include "connection.hpp"
#include "ring.hpp"

namespace {

int32_t receive_one(Connection& from, pto_frame_view& frame) {
  return shm().receive(from.child(), &frame, 1);
}

// Receive and take the next frame. Check that it has this number and size.
void expect_frame(Connection& from, uint64_t number, uint32_t bytes) {
  pto_frame_view view{};
  CHECK_EQUAL(receive_one(from, view), 1);
  CHECK_EQUAL(view.frame->number, number);
  CHECK_EQUAL(view.frame->bytes, bytes);
  CHECK(has_pattern(view.data, number, bytes));
  shm().take(from.child(), 1);
}

void expect_answer(const pto_answer& answer, uint64_t number, uint16_t kind, uint16_t outcome) {
  CHECK_EQUAL(answer.number, number);
  CHECK_EQUAL(answer.kind, kind);
  CHECK_EQUAL(answer.outcome, outcome);
}

void submit_tasks(Connection& to, uint64_t count) {
  for (uint64_t n = 1; n <= count; ++n) CHECK_EQUAL(submit(to, task(n)), 1);
}

TEST(the_table_says_what_it_is) {
  CHECK_EQUAL(shm().abi_version, PTO_ABI_VERSION);
  CHECK_EQUAL(std::string(shm().name), "shm");
  CHECK(pto_transport_entry("other") == nullptr);
}

TEST(a_frame_arrives_whole_and_stays_until_taken) {
  Connection connection(4, 4096);
  pto_frame_view view{};
  CHECK_EQUAL(receive_one(connection, view), 0);
  pto_frame frame = task(7, 40);
  frame.required_child = 3;
  frame.required_count = 9;
  frame.config = 5;
  frame.flags = PTO_FRAME_HAS_ARGUMENTS;
  frame.callable[31] = 0xAB;
  CHECK_EQUAL(submit(connection, frame), 1);
  for (int look = 0; look < 3; ++look) {
    CHECK_EQUAL(receive_one(connection, view), 1);
    CHECK(std::memcmp(view.frame, &frame, sizeof frame) == 0);
    CHECK_EQUAL(reinterpret_cast<uintptr_t>(view.data) % 8, 0u);
    CHECK(has_pattern(view.data, 7, 40));
  }
  shm().take(connection.child(), 1);
  CHECK_EQUAL(receive_one(connection, view), 0);
}

TEST(many_are_shown_at_once_and_taken_in_parts) {
  Connection connection(200, 1 << 16);
  for (uint64_t n = 1; n <= 200; ++n) CHECK_EQUAL(submit(connection, task(n, n % 64)), 1);
  std::vector<pto_frame_view> views(300);
  uint64_t next = 1;
  while (next <= 200) {
    const int32_t visible = shm().receive(connection.child(), views.data(), 300);
    CHECK(visible > 0);
    for (int32_t i = 0; i < visible; ++i) CHECK_EQUAL(views[i].frame->number, next + i);
    const int32_t part = visible > 3 ? visible / 2 : visible;
    shm().take(connection.child(), part);
    next += part;
  }
  CHECK_EQUAL(shm().receive(connection.child(), views.data(), 300), 0);
}

void fill_and_empty(Connection& connection, uint32_t count, uint32_t bytes) {
  for (uint32_t n = 1; n <= count; ++n) CHECK_EQUAL(submit(connection, task(n, bytes)), 1);
  for (uint32_t n = 1; n <= count; ++n) expect_frame(connection, n, bytes);
}

// Invariant: A mailbox holds the requested amount of data at every position of its rings.
TEST(what_was_asked_for_fits_at_once_wherever_the_ring_stands) {
  // With 4032 and 960 the sizes of the rings are exact powers of two.
  for (const uint32_t queue_bytes : {4096u, 4032u, 960u}) {
    const uint32_t frames = queue_bytes / 128;
    const uint32_t largest = queue_bytes - sizeof(pto_frame);
    Connection connection(frames, queue_bytes);
    for (uint32_t turn = 0; turn < 400; ++turn) {
      fill_and_empty(connection, frames, 64);
      // start the next items at another offset in the ring
      fill_and_empty(connection, 1, turn * 7 % largest);
      // items of this size leave the most space unused
      fill_and_empty(connection, queue_bytes / 72, 8);
      fill_and_empty(connection, 1, largest);
    }
  }
}

TEST(a_full_ring_takes_fewer_and_goes_on_after_a_take) {
  Connection connection(4, 1024);
  uint64_t sent = 0;
  while (submit(connection, task(sent + 1, 100)) == 1) ++sent;
  CHECK(sent >= 4);
  CHECK_EQUAL(submit(connection, task(sent + 1, 100)), 0);
  expect_frame(connection, 1, 100);
  expect_frame(connection, 2, 100);
  CHECK_EQUAL(submit(connection, task(sent + 1, 100)), 1);
  for (uint64_t n = 3; n <= sent + 1; ++n) expect_frame(connection, n, 100);
}

TEST(a_frame_of_the_limit_goes_and_one_byte_more_does_not) {
  Connection connection(4, 1000);
  CHECK_EQUAL(submit(connection, task(1, 936)), 1);
  CHECK_EQUAL(submit(connection, task(2, 937)), PTO_ENDPOINT_PROTOCOL);
  CHECK_CONTAINS(std::string(shm().parent_error(connection.parent())), "1001 bytes is too large");
  // After valid frames, submit() stops before the invalid one.
  const pto_frame good = task(2, 8);
  const pto_frame large = task(3, 2000);
  const std::vector<uint8_t> data = pattern(2, 2000);
  const pto_frame_view views[] = {{&good, data.data()}, {&large, data.data()}};
  CHECK_EQUAL(shm().submit(connection.parent(), views, 2), 1);
  expect_frame(connection, 1, 936);
  expect_frame(connection, 2, 8);
  pto_answer answer = completed(1, PTO_OUTCOME_FAILED);
  const std::vector<uint8_t> why = pattern(1, 937);
  answer.data = why.data();
  answer.bytes = 937;
  CHECK_EQUAL(give(connection, answer), PTO_ENDPOINT_PROTOCOL);
  CHECK_CONTAINS(std::string(shm().child_error(connection.child())), "937 bytes of data");
  answer.bytes = 936;
  CHECK_EQUAL(give(connection, answer), 1);
  CHECK_EQUAL(shm().poll(connection.parent(), &answer, 1), 1);
  CHECK_EQUAL(answer.bytes, 936u);
}

// Invariant: Merged successes never overtake a failure or a reply, and no failure or reply
// overtakes them.
TEST(successes_are_merged_and_the_rest_keeps_its_order) {
  Connection connection(64, 4096);
  submit_tasks(connection, 40);
  pto_answer answers[16];
  for (uint64_t n = 1; n <= 10; ++n) CHECK_EQUAL(give(connection, completed(n)), 1);
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 16), 1);
  expect_answer(answers[0], 10, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED);
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 16), 0);

  CHECK_EQUAL(give(connection, completed(12)), 1);
  CHECK_EQUAL(give(connection, {99, "why", 4, PTO_ANSWER_REPLY, 0}), 1);
  CHECK_EQUAL(give(connection, completed(13)), 1);
  CHECK_EQUAL(give(connection, {14, "because", 8, PTO_ANSWER_COMPLETED, PTO_OUTCOME_FAILED}), 1);
  CHECK_EQUAL(give(connection, completed(15, PTO_OUTCOME_SKIPPED)), 1);
  CHECK_EQUAL(give(connection, completed(20)), 1);
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 16), 6);
  expect_answer(answers[0], 12, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED);
  expect_answer(answers[1], 99, PTO_ANSWER_REPLY, 0);
  CHECK_EQUAL(std::string(static_cast<const char*>(answers[1].data)), "why");
  expect_answer(answers[2], 13, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED);
  expect_answer(answers[3], 14, PTO_ANSWER_COMPLETED, PTO_OUTCOME_FAILED);
  CHECK_EQUAL(std::string(static_cast<const char*>(answers[3].data)), "because");
  expect_answer(answers[4], 15, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SKIPPED);
  CHECK(answers[4].data == nullptr);
  expect_answer(answers[5], 20, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED);
}

TEST(one_answer_at_a_time_gives_the_same) {
  Connection connection(64, 4096);
  submit_tasks(connection, 8);
  for (uint64_t n = 1; n <= 8; ++n)
    CHECK_EQUAL(give(connection, completed(n, n % 3 == 0 ? PTO_OUTCOME_FAILED : 0)), 1);
  const uint64_t numbers[] = {2, 3, 5, 6, 8};
  pto_answer answer;
  for (const uint64_t number : numbers) {
    CHECK_EQUAL(shm().poll(connection.parent(), &answer, 1), 1);
    expect_answer(answer, number, PTO_ANSWER_COMPLETED,
                  number % 3 == 0 ? PTO_OUTCOME_FAILED : PTO_OUTCOME_SUCCEEDED);
  }
  CHECK_EQUAL(shm().poll(connection.parent(), &answer, 1), 0);
}

TEST(a_full_ring_of_answers_refuses_until_the_parent_polls_again) {
  Connection connection(4, 1024);
  const std::vector<uint8_t> data = pattern(1, 500);
  uint64_t count = 0;
  const auto reply = [&] {
    return give(connection, {count + 1, data.data(), 500, PTO_ANSWER_REPLY, 0});
  };
  while (reply() == 1) ++count;
  CHECK(count >= 2);
  pto_answer answers[64];
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 64), static_cast<int32_t>(count));
  // There is no free space yet: the answers of a poll stay valid until the next poll.
  CHECK_EQUAL(reply(), 0);
  for (uint64_t n = 0; n < count; ++n) CHECK(has_pattern(answers[n].data, 1, 500));
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 64), 0);
  CHECK_EQUAL(reply(), 1);
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 64), 1);
}

TEST(a_polled_answer_stays_until_the_next_poll) {
  Connection connection(4, 1024);
  submit_tasks(connection, 2);
  const std::vector<uint8_t> why = pattern(2, 500);
  CHECK_EQUAL(give(connection, {7, nullptr, 0, PTO_ANSWER_REPLY, 0}), 1);
  CHECK_EQUAL(give(connection, completed(1)), 1);
  CHECK_EQUAL(give(connection, {2, why.data(), 500, PTO_ANSWER_COMPLETED, PTO_OUTCOME_FAILED}), 1);
  const std::vector<uint8_t> other = pattern(9, 500);
  const auto fill = [&] {
    while (give(connection, {9, other.data(), 500, PTO_ANSWER_REPLY, 0}) == 1) {
    }
  };
  pto_answer answers[2];
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 2), 2);
  expect_answer(answers[0], 7, PTO_ANSWER_REPLY, 0);
  expect_answer(answers[1], 1, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED);
  fill();
  pto_answer answer{};
  CHECK_EQUAL(shm().poll(connection.parent(), &answer, 1), 1);
  expect_answer(answer, 2, PTO_ANSWER_COMPLETED, PTO_OUTCOME_FAILED);
  fill();
  CHECK(has_pattern(answer.data, 2, 500));
}

// One frame fills the last line of the ring, so the next frame starts at offset 0.
TEST(a_frame_does_not_reach_over_the_end_of_the_ring) {
  Connection connection(4, 1024);
  const pto::shm::Ring ring = pto::shm::frames_of(connection.values());
  for (uint64_t line = 0; line + 1 < ring.size / pto::shm::kLine; ++line) {
    CHECK_EQUAL(submit(connection, task(line)), 1);
    expect_frame(connection, line, 0);
  }
  CHECK_EQUAL(submit(connection, task(1)), 1);
  CHECK_EQUAL(submit(connection, task(2)), 1);
  const uint32_t bytes = 64;
  std::memcpy(ring.at(ring.size - pto::shm::kLine) + offsetof(pto_frame, bytes), &bytes, 4);
  pto_frame_view view{};
  CHECK_EQUAL(receive_one(connection, view), PTO_ENDPOINT_PROTOCOL);
  CHECK_CONTAINS(std::string(shm().child_error(connection.child())), "64 bytes of data");
}

// Invariant: Frames and answers sent before a close are received before the close is reported.
TEST(what_was_put_in_before_closing_still_arrives) {
  Connection connection(8, 4096);
  submit_tasks(connection, 3);
  CHECK_EQUAL(give(connection, completed(1)), 1);
  CHECK_EQUAL(give(connection, completed(2, PTO_OUTCOME_FAILED)), 1);
  connection.close_child();
  CHECK_EQUAL(submit(connection, task(4)), PTO_ENDPOINT_CLOSED);
  pto_answer answers[4];
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 1), 1);
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 4), 1);
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 4), PTO_ENDPOINT_CLOSED);

  Connection other(8, 4096);
  submit_tasks(other, 2);
  other.close_parent();
  expect_frame(other, 1, 0);
  CHECK_EQUAL(give(other, completed(1)), PTO_ENDPOINT_CLOSED);
  expect_frame(other, 2, 0);
  pto_frame_view view{};
  CHECK_EQUAL(receive_one(other, view), PTO_ENDPOINT_CLOSED);
}

TEST(memory_is_used_again_for_another_child) {
  Connection connection(8, 4096);
  submit_tasks(connection, 5);
  expect_frame(connection, 1, 0);
  CHECK_EQUAL(give(connection, completed(1, PTO_OUTCOME_FAILED)), 1);
  connection.reopen();
  pto_frame_view view{};
  pto_answer answer;
  CHECK_EQUAL(receive_one(connection, view), 0);
  CHECK_EQUAL(shm().poll(connection.parent(), &answer, 1), 0);
  CHECK_EQUAL(submit(connection, task(6)), 1);
  expect_frame(connection, 6, 0);
  CHECK_EQUAL(give(connection, completed(1)), 1);  // `completed` is 1 from here on
  CHECK_EQUAL(shm().poll(connection.parent(), &answer, 1), 1);
}

TEST(a_child_answers_in_order) {
  Connection connection(8, 4096);
  submit_tasks(connection, 5);
  CHECK_EQUAL(give(connection, completed(3)), 1);
  CHECK_EQUAL(give(connection, completed(3)), PTO_ENDPOINT_PROTOCOL);
  CHECK_CONTAINS(std::string(shm().child_error(connection.child())),
                 "frame 3 is answered after task frame 3");
  CHECK_EQUAL(give(connection, completed(2, PTO_OUTCOME_FAILED)), PTO_ENDPOINT_PROTOCOL);
  CHECK_EQUAL(give(connection, completed(4)), 1);
}

// Return how often the bell has rung. Register a sleeper, so that the next ring counts.
uint32_t rings_of(pto_bell& bell) {
  bell.sleepers = 1;
  return bell.rung;
}

// Invariant: A mailbox wakes a side that waits for frames, answers or space, and no other side.
TEST(a_sleeping_side_is_woken) {
  Connection connection(4, 1024);
  pto_bell& child = connection.child_bell();
  pto_bell& parent = connection.parent_bell();
  CHECK_EQUAL(rings_of(child) + rings_of(parent), 0u);
  CHECK_EQUAL(submit(connection, task(1)), 1);
  CHECK_EQUAL(rings_of(child), 1u);
  CHECK_EQUAL(give(connection, completed(1)), 1);
  CHECK_EQUAL(rings_of(parent), 1u);
  expect_frame(connection, 1, 0);
  CHECK_EQUAL(rings_of(parent), 1u);  // no ring, because the parent does not request space
  uint64_t sent = 1;
  while (submit(connection, task(sent + 1, 100)) == 1) ++sent;
  expect_frame(connection, 2, 100);
  CHECK_EQUAL(rings_of(parent), 2u);
  connection.close_child();
  CHECK_EQUAL(rings_of(parent), 3u);
}

TEST(a_child_without_space_is_woken_when_space_is_free) {
  Connection connection(4, 1024);
  connection.child_bell().sleepers = 1;
  const std::vector<uint8_t> data = pattern(1, 500);
  const pto_answer reply{1, data.data(), 500, PTO_ANSWER_REPLY, 0};
  pto_answer answers[64];
  while (give(connection, reply) == 1) {
  }
  CHECK(shm().poll(connection.parent(), answers, 64) > 0);
  // no ring, because the caller may still read the answers
  CHECK_EQUAL(connection.child_bell().rung, 0u);
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 64), 0);
  CHECK_EQUAL(connection.child_bell().rung, 1u);
  CHECK_EQUAL(give(connection, reply), 1);
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 64), 1);
  CHECK_EQUAL(shm().poll(connection.parent(), answers, 64), 0);
  // no ring, because the child no longer requests space
  CHECK_EQUAL(connection.child_bell().rung, 1u);
}

TEST(a_side_that_is_awake_is_not_rung) {
  Connection connection(4, 1024);
  CHECK_EQUAL(submit(connection, task(1)), 1);
  CHECK_EQUAL(give(connection, completed(1)), 1);
  CHECK_EQUAL(connection.child_bell().rung, 0u);
  CHECK_EQUAL(connection.parent_bell().rung, 0u);
}

TEST(memory_that_is_too_small_cannot_be_opened) {
  Connection connection(4, 1024);
  pto_connection smaller = connection.values();
  smaller.memory_bytes -= 1;
  CHECK(shm().open_parent(&smaller) == nullptr);
  CHECK(shm().open_child(&smaller) == nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
