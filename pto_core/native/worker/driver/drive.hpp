// Drives the Worker while a thread waits, and makes the host calls that become due.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "driver/host.hpp"
#include "driver/role.hpp"
#include "pto/engine/bell.hpp"

namespace pto::worker {

class WorkerDrive;
class Role;

// The driver's own thread. It drives a run while the program neither submits nor waits.
//
// The thread checks every millisecond whether the program has driven since the last check. If it
// has not, and if there is work, the thread takes the role. If there is no work for a long time,
// the thread checks less often, then sleeps. It starts with the first run. During a fork it is
// parked and holds no lock.
class Background {
 public:
  explicit Background(WorkerDrive& drive) : drive_(drive) {}
  ~Background() { stop(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Start the thread unless it exists. Throws std::system_error.
  void start();
  // Called on the thread itself, inside a host call. The thread ends after the call; see
  // end_by_itself().
  void stop();
  bool is_own_thread() const { return id_ == std::this_thread::get_id(); }
  // Called on the thread itself. No other thread waits for its end, so its last action is to call
  // `rest`, which may delete the driver.
  void end_by_itself(std::function<void()> rest);
  void park();
  void unpark();

  // Called after a submit, or the end of a wait. Cheap unless the thread sleeps.
  void wake_if_asleep() {
    if (is_asleep_.load()) wake();
  }
  // Drive at once instead of after the current nap. Called when the program waits in an event loop.
  void drive_now();

 private:
  void wake();
  void loop();
  void drive(uint64_t drives);
  bool is_wanted(uint64_t drives) const;
  void call_host(bool has_actions);
  void note_state();
  bool poll(const Role& role, uint64_t drives, bool* has_actions);

  WorkerDrive& drive_;
  std::thread thread_;                 // used by start() and stop() only
  std::atomic<std::thread::id> id_{};  // set while the thread exists
  std::function<void()> rest_;         // the last action of the driver's own thread
  pid_t process_ = 0;                  // the process that started the thread
  sigset_t program_mask_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t parks_ = 0;      // number of park() calls without unpark()
  bool is_parked_ = false;  // whether the thread is parked or has ended its work
  bool is_asked_ = false;   // set by drive_now()
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_asleep_{false};
  std::atomic<bool> is_park_wanted_{false};
};

constexpr uint64_t kSliceNs = 50'000'000;
// The duration of the first sleep of a wait. Each later sleep is twice as long, up to a slice. A
// child that has just reported does not ring for its next completions; see child/child_loop.hpp.
constexpr uint64_t kShortestSliceNs = 1'000'000;
// The longest sleep while a task has a time limit or waits before its next attempt.
constexpr uint64_t kDeadlineSliceNs = kSliceNs / 5;

constexpr uint16_t kNotTraced = 0;

inline uint64_t saturating_add(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

class WorkerDrive {
 public:
  // `progress` is the progress table of the state. Its doorbell is used without the role.
  WorkerDrive(GuardedState& state, Host& host, SharedFlags& flags, const ProgressTable& progress)
      : state_(state), host_(host), flags_(flags), progress_(progress), background_(*this) {}

  // Wait until `done(role)` returns true; return false at `deadline_ns` (CLOCK_MONOTONIC). `done`
  // is called with the role after each poll. A trace has the wait as this event. If the driver is
  // closed during the wait, this throws and does not access the driver any more.
  template <class Done>
  bool wait_until(Done done, uint64_t deadline_ns, uint16_t event = kNotTraced);
  // Call `attempt(role)` until it succeeds, and wait for free space between the calls. `attempt`
  // throws if it can never succeed.
  template <class Attempt>
  void attempt_or_wait(Attempt attempt);
  // Run `call(role)` and return its result. If it throws, store the exception in `error` and return
  // true. The thread must have released the resources of Host::give_up(). If another thread drives,
  // this waits for the role, because children ring for no completions while that thread polls them.
  template <class Call>
  bool guarded(Call call, std::exception_ptr& error) noexcept;

  // Call the host, without the role.
  void run_actions();
  void call_host(bool is_callers);
  // Call the host if a call is due. This serves a program that submits continuously and never
  // waits.
  void call_host_if_due();
  // Store an exception for the next wait of the program. Call this without the GIL, because a
  // thread that waits for the GIL may hold the role.
  void keep_failure(std::exception_ptr error);
  // Return how long a wait may sleep, so that it misses neither its own deadline, nor a deadline of
  // a task, nor the end of a delay.
  uint64_t slice_ns(uint64_t deadline_ns, uint64_t* longest_ns) const;
  // Return whether a wait that sleeps this long must end, because tasks may soon have to move, or
  // to run again.
  bool is_too_long(uint64_t longest_ns) const {
    return (flags_.is_unbalanced.load(std::memory_order_relaxed) &&
            longest_ns > kShortestSliceNs) ||
           (flags_.delays.load(std::memory_order_relaxed) > 0 && longest_ns > kDeadlineSliceNs);
  }
  bool is_call_due() const {
    return engine::monotonic_ns() - flags_.last_host_call_ns >= longest_slice_ns(flags_);
  }
  // Return the number of waits on this thread. There can be several, because a host call may wait
  // again.
  uint32_t waits_of_this_thread() const;

  GuardedState& state() { return state_; }
  Host& host() { return host_; }
  SharedFlags& flags() { return flags_; }
  const ProgressTable& progress() const { return progress_; }
  Background& background() { return background_; }

 private:
  class Waiting;

  GuardedState& state_;
  Host& host_;
  SharedFlags& flags_;
  const ProgressTable progress_;
  Background background_;  // destroyed first, because its thread uses all members above
};

// Registers a waiting thread of the program.
class WorkerDrive::Waiting {
 public:
  explicit Waiting(WorkerDrive& drive) : drive_(drive), outer_(innermost()) {
    innermost() = this;
    drive_.flags_.waiting.fetch_add(1);
  }
  ~Waiting() {
    innermost() = outer_;
    drive_.flags_.waiting.fetch_sub(1);
    if (drive_.flags_.has_work) drive_.background_.wake_if_asleep();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  static uint32_t by_this_thread(const WorkerDrive& drive) {
    uint32_t count = 0;
    for (const Waiting* each = innermost(); each; each = each->outer_)
      count += &each->drive_ == &drive;
    return count;
  }

 private:
  static Waiting*& innermost() {
    thread_local Waiting* innermost = nullptr;
    return innermost;
  }

  WorkerDrive& drive_;
  Waiting* const outer_;
};

// Records a wait of the program, from the construction to the destruction of this object, also if
// an exception ends it. The wait is registered by then, so that stop() does not end before it.
class TracedWait {
 public:
  TracedWait(GuardedState& state, const SharedFlags& flags, uint16_t event)
      : state_(state), event_(event), begin_(event && flags.traces_waits ? trace_clock() : 0) {}
  ~TracedWait() {
    if (begin_ == 0) return;
    try {
      const Role role(state_, Role::kAsks);
      if (role->core.tracer.is_on())
        role->core.tracer.lasted_until(trace_clock(), kOrchestratorTrack, event_, begin_);
    } catch (...) {  // inside of another call of the driver, or without memory: not recorded
    }
  }
  TracedWait(const TracedWait&) = delete;
  TracedWait& operator=(const TracedWait&) = delete;

 private:
  GuardedState& state_;
  const uint16_t event_;
  const uint64_t begin_;
};

template <class Done>
bool WorkerDrive::wait_until(Done done, uint64_t deadline_ns, uint16_t event) {
  Waiting waiting(*this);
  const TracedWait traced(state_, flags_, event);
  uint64_t longest_ns = kShortestSliceNs;
  while (true) {
    bool is_done = false;
    std::exception_ptr error;
    engine::WaitPolicy policy;
    policy.longest_ns = slice_ns(deadline_ns, &longest_ns);
    const auto poll = [&](const Role& role) {
      DriverCore& core = role->core;
      if (core.failure) std::rethrow_exception(std::exchange(core.failure, nullptr));
      if (!flags_.is_closed) {
        if (!role->exchange.poll_and_dispatch(1)) role->withdrawals.balance();
        role->exchange.check_deadlines();
      }
      is_done = done(role);
      if (!is_done) core.check_open();
      return is_done || !core.actions.empty() || is_too_long(policy.longest_ns);
    };
    engine::Waiter waiter(progress_.parent_bell(), progress_.spin_places(),
                          ProgressTable::kParentSpinner, policy);
    host_.give_up();
    const bool is_ready = waiter.wait([&]() noexcept { return guarded(poll, error); });
    host_.take();
    if (error) std::rethrow_exception(error);
    run_actions();
    if (is_done) break;
    if (!is_ready) call_host(true);
    if (deadline_ns != UINT64_MAX && engine::monotonic_ns() >= deadline_ns) return false;
  }
  return true;
}

template <class Attempt>
void WorkerDrive::attempt_or_wait(Attempt attempt) {
  {
    const Role role(state_);
    if (attempt(role)) return;
    role->exchange.poll_and_dispatch();
  }
  wait_until(attempt, UINT64_MAX, PTO_TRACE_BACK_PRESSURE);
}

template <class Call>
bool WorkerDrive::guarded(Call call, std::exception_ptr& error) noexcept {
  const bool calls_python = flags_.calls_python.load(std::memory_order_relaxed);
  if (calls_python) host_.take();
  bool is_ready = true;
  try {
    const Role role(state_, calls_python ? Role::kPollsHolding : Role::kPolls);
    is_ready = call(role);
  } catch (...) {
    error = std::current_exception();
  }
  if (calls_python) host_.give_up();
  return is_ready;
}

}  // namespace pto::worker
