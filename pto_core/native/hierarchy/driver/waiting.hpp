// Waiting while driving. Only for the sources of this room.
#pragma once

#include <algorithm>
#include <exception>
#include <utility>

#include "driver/role.hpp"
#include "pto/engine/bell.hpp"

namespace pto::hierarchy {

constexpr uint64_t kSliceNs = 50'000'000;
// The first sleep of a wait; each is twice as long as the one before, up to a slice. A child that
// has just told something does not ring for what it ends next, see child/answers.hpp.
constexpr uint64_t kShortestSliceNs = 1'000'000;

inline uint64_t saturating_add(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// A thread of the program that waits, for as long as it does.
class Driver::Waiting {
 public:
  explicit Waiting(Driver& driver) : driver_(driver), outer_(innermost()) {
    innermost() = this;
    driver_.waiting_.fetch_add(1);
  }
  ~Waiting() {
    innermost() = outer_;
    driver_.waiting_.fetch_sub(1);
    if (driver_.has_work_) driver_.background_.wake_if_asleep();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Waits of this thread: while one looks, what it calls may wait again.
  static uint32_t by_this_thread(const Driver& driver) {
    uint32_t count = 0;
    for (const Waiting* each = innermost(); each; each = each->outer_)
      count += &each->driver_ == &driver;
    return count;
  }

 private:
  static Waiting*& innermost() {
    thread_local Waiting* innermost = nullptr;
    return innermost;
  }

  Driver& driver_;
  Waiting* const outer_;
};

// Whether `done()`, asked with the role after each pump, before CLOCK_MONOTONIC is `deadline_ns`.
// Throws where the driver is closed first; its memory is not touched any more then.
template <class Done>
bool Driver::wait_until(Done done, uint64_t deadline_ns) {
  Waiting waiting(*this);
  uint64_t longest_ns = kShortestSliceNs;
  while (true) {
    bool is_done = false;
    std::exception_ptr error;
    const auto look = [&] {
      if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
      if (!is_closed_) {
        pump(1);
        look_for_deadlines();
      }
      is_done = done();
      if (!is_done) check_open();
      return is_done || !actions_.empty();
    };
    engine::WaitPolicy policy;
    policy.longest_ns = slice_ns(deadline_ns, &longest_ns);
    engine::Waiter waiter(board_.parent_bell(), board_.spin_places(), Board::kParentSpinner,
                          policy);
    host_.give_up();
    const bool is_ready = waiter.wait([&]() noexcept { return guarded(look, error); });
    host_.take();
    if (error) std::rethrow_exception(error);
    run_actions();
    if (is_done) break;
    if (!is_ready) look_around(true);
    if (deadline_ns != UINT64_MAX && engine::monotonic_ns() >= deadline_ns) return false;
  }
  return true;
}

// Whether `attempt`, with the role, got what it wanted; waits for room until it does. `attempt`
// throws when it never can.
template <class Attempt>
void Driver::attempt_or_wait(Attempt attempt) {
  {
    Role role(*this);
    if (attempt()) return;
    pump();
  }
  wait_until(attempt, UINT64_MAX);
}

// Runs `call` with the role and what it needs of the host, and gives whether it is ready: it is,
// too, when it throws, which is kept. Waits for the role: what others see while they have it,
// nobody rings for.
template <class Call>
bool Driver::guarded(Call call, std::exception_ptr& error) noexcept {
  const bool needs_python = needs_python_.load(std::memory_order_relaxed);
  if (needs_python) host_.take();
  bool is_ready = true;
  try {
    const Role role(*this, needs_python ? Role::kLooksHolding : Role::kLooks);
    is_ready = call();
  } catch (...) {
    error = std::current_exception();
  }
  if (needs_python) host_.give_up();
  return is_ready;
}

}  // namespace pto::hierarchy
