// The child acts between any two instructions of a call that the parent makes.

#include "interleaving.hpp"
#include "connection.hpp"

namespace {

TEST(an_answer_before_the_close_is_reported_wherever_a_poll_stands) {
  uint64_t at = 1;
  for (bool has_acted = true; has_acted; ++at) {
    Connection connection(4, 4096);
    CHECK_EQUAL(submit(connection, task(1)), 1);
    pto_frame_view frame{};
    CHECK_EQUAL(shm().receive(connection.child(), &frame, 1), 1);
    shm().take(connection.child(), 1);
    const auto answer_and_close = [&] {
      CHECK_EQUAL(give(connection, completed(1)), 1);
      connection.close_child();
    };
    pto_answer answers[4] = {};
    int32_t reported = 0;
    has_acted = interleaving::run_with(
        at, answer_and_close, [&] { reported = shm().poll(connection.parent(), answers, 4); });
    if (!has_acted) answer_and_close();
    if (reported == 0) reported = shm().poll(connection.parent(), answers, 4);
    CHECK_EQUAL(reported, 1);
    CHECK_EQUAL(answers[0].number, 1u);
    CHECK_EQUAL(shm().poll(connection.parent(), answers, 4), PTO_ENDPOINT_CLOSED);
  }
  CHECK(at > 20);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
