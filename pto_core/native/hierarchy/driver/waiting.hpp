// Waiting while driving. Only for the sources of this room.
#pragma once

#include <algorithm>
#include <exception>
#include <utility>

#include "driver/role.hpp"
#include "pto/engine/bell.hpp"

namespace pto::hierarchy {

constexpr uint64_t kSliceNs = 50'000'000;

inline uint64_t saturating_add(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// Counts the threads of the program that wait.
class Waiting {
 public:
  explicit Waiting(std::atomic<uint32_t>& count) : count_(count) { count_.fetch_add(1); }
  ~Waiting() { count_.fetch_sub(1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<uint32_t>& count_;
};

// Whether `done()`, asked with the role after each pump, before CLOCK_MONOTONIC is `deadline_ns`.
template <class Done>
bool Driver::wait_until(Done done, uint64_t deadline_ns) {
  Waiting waiting(waiting_);
  while (true) {
    bool is_done = false;
    std::exception_ptr error;
    const auto look = [&]() noexcept {
      return guarded(
          [&] {
            Role role(*this, std::try_to_lock);
            if (!role) return false;
            if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
            if (pump(true) && waiting_.load(std::memory_order_relaxed) > 1)
              engine::ring(board_.parent_bell());
            look_for_deadlines(timeouts_ > 0 ? engine::monotonic_ns() : 0);
            is_done = done();
            return is_done || !actions_.empty();
          },
          error);
    };
    engine::WaitPolicy policy;
    policy.longest_ns = slice_ns(deadline_ns);
    engine::Waiter waiter(board_.parent_bell(), board_.spin_places(), Board::kParentSpinner,
                          policy);
    host_.give_up();
    const bool is_ready = waiter.wait(look);
    host_.take();
    if (error) std::rethrow_exception(error);
    run_actions();
    if (is_done) break;
    if (!is_ready) host_.look(true);
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
    pump(true);
  }
  wait_until(attempt, UINT64_MAX);
}

// Runs `call` with what it needs of the host, keeping what it throws: then it is ready, too.
template <class Call>
bool Driver::guarded(Call call, std::exception_ptr& error) noexcept {
  const bool needs_python = needs_python_.load(std::memory_order_relaxed);
  if (needs_python) host_.take();
  bool is_ready = true;
  try {
    is_ready = call();
  } catch (...) {
    error = std::current_exception();
  }
  if (needs_python) host_.give_up();
  return is_ready;
}

}  // namespace pto::hierarchy
