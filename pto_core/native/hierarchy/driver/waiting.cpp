#include "driver/waiting.hpp"

#include "driver/driver.hpp"

namespace pto::hierarchy {

// The host is asked that often, and more often while it starts a child anew: nobody rings when that
// is ready.
uint64_t Driver::longest_slice_ns() const {
  return returning_ > 0 ? kSliceNs / 10 : kSliceNs;
}

// A wait with a deadline, or with deadlines of tasks to watch, comes back in time for them.
uint64_t Driver::slice_ns(uint64_t deadline_ns, uint64_t* longest_ns) const {
  constexpr uint64_t kShortest = 100'000;
  uint64_t slice = std::min(*longest_ns, longest_slice_ns());
  if (timeouts_ > 0) slice = std::min(slice, kSliceNs / 5);
  *longest_ns = std::min(2 * *longest_ns, kSliceNs);
  if (deadline_ns != UINT64_MAX) {
    const uint64_t now = engine::monotonic_ns();
    slice = std::min(slice, deadline_ns > now ? deadline_ns - now : 0);
    slice = std::max(slice, kShortest);
  }
  return slice;
}

void Driver::run_actions() {
  std::vector<Action> actions;
  {
    Role role(*this, Role::kAsks);
    actions.swap(actions_);
  }
  for (const Action& action : actions) {
    {
      Role role(*this, Role::kAsks);
      const ChildLink& link = *links_[static_cast<size_t>(action.child)];
      // Another action, or another thread, may have put a new child in its place.
      if (!link.is_attached() || link.connection() != action.connection) continue;
    }
    if (action.cause == kNone)
      host_.child_broken(action.child, action.words);
    else
      host_.end_child(action.child, action.cause);
  }
}

void Driver::look_around(bool is_callers) {
  last_look_ns_ = engine::monotonic_ns();
  host_.look(is_callers);
}

void Driver::note_if_look_due() {
  is_look_due_ = engine::monotonic_ns() - last_look_ns_ >= longest_slice_ns();
}

// A program that submits all the time never waits.
void Driver::look_around_if_due() {
  if (!is_look_due_.exchange(false, std::memory_order_relaxed)) return;
  {
    Role role(*this);
    look_for_deadlines();
  }
  run_actions();
  look_around(true);
}

void Driver::keep_failure(std::exception_ptr error) {
  {
    const std::lock_guard role(role_);
    if (!failure_) failure_ = std::exchange(error, nullptr);
    wake_waiting();
    watches_.end_all();
  }
  if (!error) return;
  host_.take();  // it may be a Python one
  error = nullptr;
  host_.give_up();
}

bool Driver::wait(int64_t task, uint64_t timeout_ns) {
  const auto has_ended = [&] { return records_.find(task) == nullptr; };
  {
    Role role(*this);
    if (has_ended()) return true;
  }
  return wait_until(has_ended, saturating_add(timeout_ns ? engine::monotonic_ns() : 0, timeout_ns));
}

bool Driver::watch(int64_t task) {
  {
    Role role(*this, Role::kAsks);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (!records_.find(task)) return true;
    check_open();
    watches_.add(task);
  }
  background_.drive_now();
  return false;
}

std::vector<int64_t> Driver::take_watched() {
  Role role(*this, Role::kAsks);
  return watches_.take();
}

int Driver::watch_descriptor() {
  Role role(*this, Role::kAsks);
  return watches_.descriptor();
}

void Driver::stop_watching() {
  Role role(*this, Role::kAsks);
  watches_.stop();
}

bool Driver::wait_for_run(uint64_t timeout_ns) {
  return wait_until([this] { return !is_running_; },
                    saturating_add(engine::monotonic_ns(), timeout_ns));
}

void Driver::run_end(bool is_interrupted) {
  std::shared_ptr<RunOutcomes> outcomes;
  {
    Role role(*this);
    check_open();
    outcomes = outcomes_;
    if (is_cancelled_) end_scopes();
    engine_->run_end(out_);
    is_dirty_ = true;
    process();
    pump();
    if (!is_running_) return;
  }
  if (is_interrupted) {
    end_interrupted();
  } else {
    try {
      wait_for_run(UINT64_MAX);
    } catch (...) {
      const std::exception_ptr interruption = std::current_exception();
      end_interrupted();
      std::rethrow_exception(interruption);
    }
  }
  if (outcomes->is_stopped) check_open();
}

// What has not started does not; what runs gets some time, then its child is ended. Another
// interruption cuts the time short, and nothing else: this returns when the run is over. A host
// that never tells of an end is given up.
void Driver::end_interrupted() {
  constexpr int kAttempts = 100;
  const int64_t cause = add_cause({});
  cancel(cause);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      if (wait_for_run(configuration_.patience_ns)) return;
    } catch (...) {
    }
    std::vector<int32_t> busy;
    {
      Role role(*this);
      for (size_t i = 0; i < links_.size(); ++i)
        if (links_[i]->in_flight() > 0) busy.push_back(static_cast<int32_t>(i));
    }
    for (const int32_t child : busy) {
      try {
        host_.end_child(child, cause);
      } catch (...) {
      }
    }
  }
}

Driver::ReplyState Driver::reply(uint64_t number, uint64_t timeout_ns, std::string* data) {
  ReplyState state = ReplyState::kPending;
  const auto take = [&] {
    const auto found = replies_.find(number);
    state = found == replies_.end() ? ReplyState::kLost : found->second.state;
    if (state == ReplyState::kPending) return false;
    if (found != replies_.end()) {
      *data = std::move(found->second.data);
      replies_.erase(found);
    }
    return true;
  };
  refuse_inside();
  wait_until(take, saturating_add(engine::monotonic_ns(), timeout_ns));
  return state;
}

}  // namespace pto::hierarchy
