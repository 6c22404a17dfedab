// How a run ends that something comes in between of.
#include <stdexcept>

#include "check.hpp"
#include "driver/crew.hpp"
#include "driver/tasks.hpp"

TEST(a_run_that_is_over_before_the_driver_is_stopped_does_not_say_so) {
  std::atomic<bool> may_end = false;
  Crew crew(1, 4, [&](int32_t, const pto_frame&, const uint64_t*, std::string*) {
    while (!may_end) std::this_thread::yield();
    return true;
  });
  std::vector<uint64_t> words(1);
  crew.driver->run_begin(Hazards::kRaw);
  submit(crew, words[0]);
  crew.on_look = [&] { may_end = may_end || !crew.driver->is_own_thread(); };
  bool is_stopped = false;
  crew.on_take = [&] {
    if (crew.driver->is_running() || is_stopped) return;
    is_stopped = true;  // as another thread would, before the one that waited goes on
    crew.child(0).stop();
    crew.driver->stop(crew.driver->add_cause("closed"));
  };
  crew.driver->run_end();
  crew.on_take = nullptr;
  CHECK(is_stopped);
  CHECK(crew.driver->failures().empty());
}

TEST(an_interrupted_run_is_over_however_late_the_end_of_a_child_is_told) {
  Crew crew(1, 4, fold);
  crew.child(0).stop();  // what it is sent stays in flight
  std::vector<uint64_t> words(1);
  crew.driver->run_begin(Hazards::kRaw);
  submit(crew, words[0]);
  crew.on_look = [] { throw std::runtime_error("interrupted"); };
  int asked = 0;
  crew.on_end = [&](int32_t) {
    if (++asked < 5) throw std::runtime_error("interrupted again");
  };
  std::string words_of_error;
  try {
    crew.driver->run_end();
  } catch (const std::runtime_error& error) {
    words_of_error = error.what();
  }
  CHECK_EQUAL(words_of_error, std::string("interrupted"));
  crew.on_look = nullptr;
  crew.on_end = nullptr;
  CHECK_EQUAL(asked, 5);
  CHECK(!crew.driver->is_running());
}

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
