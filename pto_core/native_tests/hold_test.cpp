// Whom the task that was submitted last is held back from, and for how long.
#include "driver/hold.hpp"

#include <chrono>
#include <thread>

#include "check.hpp"

using namespace pto::hierarchy;

namespace {

constexpr auto kNap = std::chrono::milliseconds(1);
constexpr int kSoonMs = 20'000;

// What another thread that drives is told.
uint64_t told_elsewhere(Hold& hold) {
  uint64_t left = 0;
  std::thread([&] { left = hold.left_ns(); }).join();
  return left;
}

}  // namespace

TEST(it_is_held_back_from_other_threads_until_its_own_one_drives) {
  Hold hold;
  CHECK_EQUAL(told_elsewhere(hold), Hold::kNotHeld);
  hold.begin(7);
  const uint64_t left = told_elsewhere(hold);
  CHECK(left > 0 && left <= 20'000'000);
  CHECK_EQUAL(hold.left_ns(), Hold::kNotHeld);
  CHECK_EQUAL(told_elsewhere(hold), Hold::kNotHeld);
}

TEST(only_the_task_that_is_held_can_be_let_go) {
  Hold hold;
  hold.begin(7);
  hold.let_go(6);
  CHECK(told_elsewhere(hold) != Hold::kNotHeld);
  hold.let_go(7);
  CHECK_EQUAL(told_elsewhere(hold), Hold::kNotHeld);
}

TEST(a_thread_that_sleeps_has_turned_to_something_else) {
  Hold hold;
  hold.begin(7);
  CHECK(told_elsewhere(hold) != Hold::kNotHeld);
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  uint64_t left = 0;
  std::thread other([&] {
    for (int i = 0; (left = hold.left_ns()) != Hold::kNotHeld && i < kSoonMs; ++i)
      std::this_thread::sleep_for(kNap);
  });
  other.join();  // this thread sleeps
  CHECK_EQUAL(left, Hold::kNotHeld);
}

TEST(so_has_one_that_computes_and_one_that_is_gone) {
  Hold hold;
  hold.begin(7);
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    for (int i = 0; hold.left_ns() != Hold::kNotHeld && i < kSoonMs; ++i)
      std::this_thread::sleep_for(kNap);
    is_over = true;
  });
  while (!is_over) {
  }
  other.join();
  std::thread([&] { hold.begin(8); }).join();
  for (int i = 0; hold.left_ns() != Hold::kNotHeld; ++i) {
    CHECK(i < kSoonMs);
    std::this_thread::sleep_for(kNap);
  }
}

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
