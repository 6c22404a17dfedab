#include "driver/drive.hpp"

namespace pto::hierarchy {

uint64_t Drive::slice_ns(uint64_t deadline_ns, uint64_t* longest_ns) const {
  constexpr uint64_t kShortest = 100'000;
  uint64_t slice = std::min(*longest_ns, longest_slice_ns(flags_));
  if (flags_.timeouts > 0) slice = std::min(slice, kSliceNs / 5);
  *longest_ns = std::min(2 * *longest_ns, kSliceNs);
  if (deadline_ns != UINT64_MAX) {
    const uint64_t now = engine::monotonic_ns();
    slice = std::min(slice, deadline_ns > now ? deadline_ns - now : 0);
    slice = std::max(slice, kShortest);
  }
  return slice;
}

void Drive::run_actions() {
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

void Drive::call_host(bool is_callers) {
  flags_.last_host_call_ns = engine::monotonic_ns();
  host_.attend(is_callers);
}

void Drive::call_host_if_due() {
  if (!flags_.is_host_call_due.exchange(false, std::memory_order_relaxed)) return;
  {
    const Role role(state_);
    role->exchange.check_deadlines();
  }
  run_actions();
  call_host(true);
}

void Drive::keep_failure(std::exception_ptr error) {
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

uint32_t Drive::waits_of_this_thread() const {
  return Waiting::by_this_thread(*this);
}

}  // namespace pto::hierarchy
