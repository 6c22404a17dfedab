#include "driver/drive.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "blocked_signals.hpp"
#include "processes/current_process.hpp"

namespace pto::worker {
namespace {

constexpr std::chrono::nanoseconds kNap = std::chrono::milliseconds(1);
// After this many consecutive naps without work, each nap is an eighth longer than the nap before.
// So if a run begins after a pause, the thread drives it with a delay of at most an eighth of the
// pause. The thread sleeps only after a pause of a third of a second, because waking it from a
// sleep costs a run more than all other calls of the run.
constexpr uint32_t kIdleNaps = 20;
constexpr std::chrono::nanoseconds kLongestNap = std::chrono::milliseconds(40);

// Sets the signal mask of the program while the host runs, because the host may fork on this thread
// and the child inherits the mask.
class ProgramSignals {
 public:
  explicit ProgramSignals(const sigset_t& mask) { pthread_sigmask(SIG_SETMASK, &mask, &before_); }
  ~ProgramSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  ProgramSignals(const ProgramSignals&) = delete;
  ProgramSignals& operator=(const ProgramSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

void Background::start() {
  if (thread_.joinable() && process_ == current_process()) {
    wake_if_asleep();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_parked_ = false;
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &program_mask_);
  thread_ = core::start_thread("the thread of a Worker", [this] {
    loop();
    if (rest_) std::exchange(rest_, nullptr)();
  });
  id_ = thread_.get_id();
  process_ = current_process();
}

void Background::stop() {
  if (!thread_.joinable()) return;
  if (process_ != current_process()) {  // a forked child does not have the thread
    thread_.detach();
    id_ = std::thread::id();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  if (is_own_thread()) return;
  changed_.notify_all();
  drive_.host().give_up();
  thread_.join();
  drive_.host().take();
  id_ = std::thread::id();
  is_stopping_ = false;
}

void Background::end_by_itself(std::function<void()> rest) {
  is_stopping_ = true;
  rest_ = std::move(rest);
  thread_.detach();
  id_ = std::thread::id();
}

void Background::park() {
  {
    std::unique_lock lock(mutex_);
    parks_ += 1;
    is_park_wanted_ = true;
    if (id_.load() == std::thread::id() || process_ != current_process()) return;
    // The caller is the driver's own thread: it starts a child inside a host call, where it holds
    // no lock and no role.
    if (is_own_thread()) return;
  }
  changed_.notify_all();
  engine::ring(drive_.progress().parent_bell());
  drive_.host().give_up();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_parked_; });
  }
  drive_.host().take();
}

void Background::unpark() {
  {
    const std::lock_guard lock(mutex_);
    if (parks_ == 0 || --parks_ > 0) return;
    is_park_wanted_ = false;
  }
  changed_.notify_all();
}

void Background::drive_now() {
  {
    const std::lock_guard lock(mutex_);
    is_asked_ = true;
    is_asleep_ = false;
  }
  changed_.notify_all();
}

void Background::wake() {
  {
    const std::lock_guard lock(mutex_);
    is_asleep_ = false;
  }
  changed_.notify_all();
}

void Background::loop() {
  std::unique_lock lock(mutex_);
  uint64_t drives = 0;
  uint32_t idle_naps = 0;
  std::chrono::nanoseconds nap = kNap;
  bool is_noted = false;  // whether the state was written since the last work
  while (!is_stopping_) {
    if (parks_ > 0) {
      is_parked_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return parks_ == 0 || is_stopping_; });
      is_parked_ = false;
      continue;
    }
    if (nap > kLongestNap && !is_noted && !drive_.flags().has_work) {
      lock.unlock();
      note_state();
      lock.lock();
      is_noted = true;
      continue;
    }
    if (nap > kLongestNap) {
      is_noted = false;
      is_asleep_ = true;
      // A thread that adds work first sets `has_work`, then checks whether this thread sleeps. So
      // either this thread sees `has_work`, or the other thread wakes it.
      if (drive_.flags().has_work && drive_.flags().waiting == 0) is_asleep_ = false;
      changed_.wait(lock, [this] { return !is_asleep_ || is_stopping_ || parks_ > 0; });
      is_asleep_ = false;
      idle_naps = 0;
      nap = kNap;
      continue;
    }
    if (!is_asked_) changed_.wait_for(lock, nap);
    const bool is_asked = std::exchange(is_asked_, false);
    const uint64_t now = drive_.flags().drives.load(std::memory_order_relaxed);
    const bool is_driven = now != drives && !is_asked;
    drives = now;
    const bool has_work = drive_.flags().has_work.load(std::memory_order_relaxed);
    const bool is_wanted = has_work && drive_.flags().waiting.load(std::memory_order_relaxed) == 0;
    idle_naps = is_wanted || is_driven ? 0 : idle_naps + 1;
    // When a program thread ends its wait, it wakes this thread from a sleep, but not from a nap;
    // see Waiting.
    if (idle_naps < kIdleNaps)
      nap = kNap;
    else
      nap = has_work ? 2 * kLongestNap : nap + nap / 8;
    if (is_driven || !is_wanted || is_stopping_ || parks_ > 0) continue;
    lock.unlock();
    drive(drives);
    lock.lock();
  }
  // From here on this thread only calls the host, so park() need not wait for it.
  is_parked_ = true;
  changed_.notify_all();
  lock.unlock();
  drive_.host().leave();
}

// Return whether to continue: the program is not driving itself, and there is work.
bool Background::is_wanted(uint64_t drives) const {
  return drive_.flags().drives.load(std::memory_order_relaxed) == drives &&
         drive_.flags().waiting.load(std::memory_order_relaxed) == 0 &&
         drive_.flags().has_work.load(std::memory_order_relaxed) && !is_stopping_ &&
         !is_park_wanted_;
}

void Background::drive(uint64_t drives) {
  uint64_t longest_ns = kShortestSliceNs;
  while (is_wanted(drives)) {
    engine::WaitPolicy policy;
    policy.spin_ns = 0;
    policy.yield_ns = 0;
    policy.longest_ns = drive_.slice_ns(UINT64_MAX, &longest_ns);
    engine::Waiter waiter(drive_.progress().parent_bell(), nullptr, ProgressTable::kParentSpinner,
                          policy);
    bool has_actions = false;
    std::exception_ptr error;
    waiter.wait([&]() noexcept {
      return drive_.guarded(
          [&](const Role& role) {
            return poll(role, drives, &has_actions) || drive_.is_too_long(policy.longest_ns);
          },
          error);
    });
    const bool has_failed = error != nullptr;
    if (has_failed) drive_.keep_failure(std::exchange(error, nullptr));
    if (has_actions || drive_.is_call_due()) call_host(has_actions);
    if (has_failed) return;
  }
}

void Background::call_host(bool has_actions) {
  std::exception_ptr error;
  drive_.host().take();
  {
    const ProgramSignals signals(program_mask_);
    try {
      if (has_actions) drive_.run_actions();
      drive_.call_host(false);
    } catch (...) {
      error = std::current_exception();
    }
  }
  drive_.host().give_up();
  if (error) drive_.keep_failure(std::exchange(error, nullptr));
}

void Background::note_state() {
  drive_.host().take();
  try {
    drive_.host().note_state();
  } catch (...) {  // a closed Worker has no state
  }
  drive_.host().give_up();
}

// Poll and dispatch. Return true if the wait for the doorbell must end: the thread is no longer
// wanted, or the host has actions to run (`has_actions`).
bool Background::poll(const Role& role, uint64_t drives, bool* has_actions) {
  if (!is_wanted(drives)) return true;
  if (!role->exchange.poll_and_dispatch()) role->withdrawals.balance();
  role->exchange.check_deadlines();
  *has_actions = !role->core.actions.empty();
  return *has_actions;
}

uint64_t WorkerDrive::slice_ns(uint64_t deadline_ns, uint64_t* longest_ns) const {
  constexpr uint64_t kShortest = 100'000;
  uint64_t slice = std::min(*longest_ns, longest_slice_ns(flags_));
  if (flags_.is_unbalanced) slice = std::min(slice, kShortestSliceNs);
  if (flags_.timeouts > 0 || flags_.delays > 0) slice = std::min(slice, kDeadlineSliceNs);
  *longest_ns = std::min(2 * *longest_ns, kSliceNs);
  if (deadline_ns != UINT64_MAX) {
    const uint64_t now = engine::monotonic_ns();
    slice = std::min(slice, deadline_ns > now ? deadline_ns - now : 0);
    slice = std::max(slice, kShortest);
  }
  return slice;
}

void WorkerDrive::run_actions() {
  std::vector<Action> actions;
  {
    const Role role(state_, Role::kAsks);
    actions.swap(role->core.actions);
  }
  for (const Action& action : actions) {
    {
      const Role role(state_, Role::kAsks);
      const ChildLink& link = role->core.link(action.child);
      // Another thread, or an earlier action, may already have restarted the child.
      if (!link.is_attached() || link.connection() != action.connection) continue;
    }
    if (action.cause == kNone)
      host_.child_broken(action.child, action.message);
    else
      host_.end_child(action.child, action.cause);
  }
}

void WorkerDrive::call_host(bool is_callers) {
  flags_.last_host_call_ns = engine::monotonic_ns();
  host_.attend(is_callers);
}

void WorkerDrive::call_host_if_due() {
  if (!flags_.is_host_call_due.exchange(false, std::memory_order_relaxed)) return;
  {
    const Role role(state_);
    role->exchange.check_deadlines();
  }
  run_actions();
  call_host(true);
}

void WorkerDrive::keep_failure(std::exception_ptr error) {
  {
    const Role role(state_, Role::kPolls);
    if (!role->core.failure) role->core.failure = std::exchange(error, nullptr);
    role->core.watches.end_all();
    role->exchange.wake_waiting();
  }
  if (!error) return;
  host_.take();  // the exception may be a Python object
  error = nullptr;
  host_.give_up();
}

uint32_t WorkerDrive::waits_of_this_thread() const {
  return Waiting::by_this_thread(*this);
}

}  // namespace pto::worker
