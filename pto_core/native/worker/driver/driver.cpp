#include "driver/driver.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

namespace pto::worker {

void ChildControl::attach(int32_t child, const pto_transport_api* api, pto_parent_end* end,
                          uint32_t largest_frame_bytes, bool is_python) {
  const Role role(drive_.state(), Role::kAsks);
  if (drive_.flags().is_closed) return api->close_parent(end);
  role->core.link(child).attach(api, end, largest_frame_bytes);
  if (is_python) drive_.flags().calls_python = true;
}

void ChildControl::detach_all() {
  const Role role(drive_.state());
  for (const auto& link : role->core.links) link->detach();
}

void ChildControl::set_ready(int32_t child) {
  const Role role(drive_.state());
  if (drive_.flags().is_closed) return;
  role->exchange.set_ready(child);
  role->exchange.poll_and_dispatch();
}

void ChildControl::lose(int32_t child, int64_t cause, bool returns) {
  const Role role(drive_.state());
  if (drive_.flags().is_closed) return;
  role->exchange.lose(child, cause, returns);
  role->exchange.poll_and_dispatch();
  engine::ring(role->core.progress.parent_bell());
}

uint64_t ChildControl::control(int32_t child, std::string data) {
  const Role role(drive_.state());
  role->core.check_open();
  ChildLink& link = role->core.link(child);
  if (!link.is_attached()) {
    throw Refusal(Refusal::Kind::kProtocol,
                  "child " + std::to_string(child) + " has exited and accepts no control frame");
  }
  const size_t bytes = sizeof(pto_frame) + data.size();
  if (bytes > link.largest_frame_bytes()) {
    throw Refusal(Refusal::Kind::kCapacity, "a control frame has " + std::to_string(bytes) +
                                                " bytes, but the child accepts at most " +
                                                std::to_string(link.largest_frame_bytes()) +
                                                "; set a larger child_queue_bytes");
  }
  const uint64_t number = role->core.replies.expect();
  link.control(number, std::make_shared<const std::string>(std::move(data)));
  role->exchange.poll_and_dispatch();
  return number;
}

ReplyState ChildControl::reply(uint64_t number, uint64_t timeout_ns, std::string* data) {
  ReplyState state = ReplyState::kPending;
  drive_.state().refuse_inside();
  drive_.wait_until(
      [&](const Role& role) {
        state = role->core.replies.take(number, data);
        return state != ReplyState::kPending;
      },
      saturating_add(engine::monotonic_ns(), timeout_ns));
  return state;
}

namespace {

constexpr uint32_t kSubmitsPerPoll = 8;

}  // namespace

Driver::Driver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine, Host& host)
    : configuration_(configuration),
      host_(host),
      state_(configuration_, std::move(engine), host, flags_),
      drive_(state_, host, flags_, ProgressTable(configuration.progress)),
      children_(drive_) {
  flags_.calls_python = configuration.calls_python;
}

void Driver::check_open() const {
  if (flags_.is_closed)
    throw Refusal(Refusal::Kind::kClosed, "this Worker was closed; make another one");
}

// ---- runs ----

std::shared_ptr<RunOutcomes> Driver::run_begin(Hazards hazards) {
  check_open();
  own_thread().start();  // it may throw, so it precedes the run
  std::shared_ptr<RunOutcomes> outcomes;
  // an exception that no wait has thrown yet; it must be destroyed without the role
  std::exception_ptr stale;
  {
    const Role role(state_);
    DriverCore& core = role->core;
    core.check_open();
    role->exchange.wake_first_child();
    const uint32_t number = core.engine->run_begin(hazards, core.out);
    if (flags_.open_runs == 0) {
      stale = std::exchange(core.failure, nullptr);
      role->submitter.restart();
    }
    core.book.begin(core.links, number);
    outcomes = core.book.outcomes();
    if (core.tracer.is_on()) core.tracer.run_began(core.book.next_task());
    flags_.open_runs += 1;
    role->exchange.process();
  }
  return outcomes;
}

void Driver::run_end(bool is_interrupted, std::shared_ptr<RunOutcomes> run) {
  {
    const Role role(state_);
    DriverCore& core = role->core;
    core.check_open();
    if (!run) run = core.book.outcomes();
    if (run->is_cancelled) role->submitter.end_scopes(*run);
    if (core.tracer.is_on()) core.tracer.run_built(run->first_task);
    core.engine->run_end(core.out, run->number);
    core.is_dirty = true;
    role->exchange.process();
    role->exchange.wake_waiting();
    role->exchange.poll_and_dispatch();
    if (run->is_over) return;
  }
  if (is_interrupted) {
    end_interrupted(*run);
  } else {
    try {
      drive_.wait_until([&](const Role&) { return run->is_over || run->is_interrupted; },
                        UINT64_MAX, PTO_TRACE_PARK);
      if (!run->is_over) end_interrupted(*run);
    } catch (...) {
      const std::exception_ptr interruption = std::current_exception();
      end_interrupted(*run);
      std::rethrow_exception(interruption);
    }
  }
  if (run->is_stopped) check_open();
}

// End the run after an interruption. Tasks that were not sent do not start. Running tasks have a
// grace period; then their children are killed, but not children that run tasks of other runs. A
// further interruption ends the period early.
// Return when the run is over, or when the host has not reported the exit of a child after many
// attempts.
void Driver::end_interrupted(RunOutcomes& run) {
  constexpr int kAttempts = 100;
  const int64_t cause = add_cause({});
  cancel(cause, &run);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      const uint64_t end_ns = saturating_add(engine::monotonic_ns(), configuration_.patience_ns);
      const auto is_over = [&](const Role&) { return run.is_over.load(); };
      if (drive_.wait_until(is_over, end_ns, PTO_TRACE_PARK)) return;
    } catch (...) {
    }
    std::vector<int32_t> busy;
    {
      const Role role(state_);
      const auto& links = role->core.links;
      for (size_t i = 0; i < links.size(); ++i) {
        if (links[i]->in_flight() == 0) continue;
        const int64_t oldest = links[i]->frame(links[i]->completed() + 1).task;
        if (&role->core.book.run_of(oldest) == &run) busy.push_back(static_cast<int32_t>(i));
      }
    }
    for (const int32_t child : busy) {
      try {
        host_.end_child(child, cause);
      } catch (...) {
      }
    }
  }
}

void Driver::cancel(int64_t cause, RunOutcomes* run) {
  const Role role(state_);
  if (flags_.is_closed) return;
  const std::vector<std::shared_ptr<RunOutcomes>> open = role->core.book.open_runs();
  for (const auto& each : open) {
    if (run && each.get() != run) continue;
    each->is_cancelled = true;
    role->core.engine->cancel(cause, role->core.out, each->number);
    role->core.is_dirty = true;
    role->exchange.process();
    role->withdrawals.withdraw_run(*each);
  }
  role->exchange.flush_children();
  role->exchange.wake_waiting();
}

// ---- submits ----

void Driver::ensure_granted(uint64_t bytes, RunOutcomes* run) {
  Submitter::Grant grant;
  {
    const Role role(state_);
    role->core.check_open();
    grant = role->submitter.grant_for(bytes, run);
  }
  if (grant.bytes == 0) return;
  const uint64_t granted = host_.grant(grant.ring, grant.bytes);
  const Role role(state_);
  role->submitter.note_granted(grant.ring, granted);
}

template <class Attempt>
void Driver::attempt_or_wait(RunOutcomes* run, Attempt attempt) {
  try {
    drive_.attempt_or_wait(attempt);
  } catch (...) {
    const Role role(state_);
    role->core.engine->give_up(run ? run->number : role->core.book.outcomes()->number);
    throw;
  }
}

int64_t Driver::submit(const Submission& submission) {
  drive_.call_host_if_due();
  const uint64_t allocated = bytes_to_allocate(submission);
  if (allocated > 0) ensure_granted(allocated, submission.outcomes);
  int64_t task = kNone;
  attempt_or_wait(submission.outcomes, [&](const Role& role) {
    task = role->submitter.try_submit(submission, kSubmitsPerPoll);
    return task != kNone;
  });
  own_thread().wake_if_asleep();
  return task;
}

void Driver::submit_each(const Submission& submission, int64_t count,
                         const std::function<void(int64_t)>& prepare, TaskRange& made) {
  constexpr int64_t kTasksPerRole = 256;
  for (int64_t i = 0; i < count;) {
    drive_.call_host_if_due();
    const int64_t stop = std::min(count, i + kTasksPerRole);
    i = Role(state_)->submitter.try_submit_each(submission, i, stop, prepare, made);
    if (i == stop) continue;
    made.add(submit(submission));
    i += 1;
  }
  Role(state_)->exchange.poll_and_dispatch();
  own_thread().wake_if_asleep();
}

// The state keeps a reference to the graph, because its records point into it. Another thread may
// end the run during the replay, which drops the reference.
void Driver::replay(std::shared_ptr<CapturedGraph> graph, bool is_known) {
  constexpr size_t kStepsPerRole = 1024;
  {
    const Role role(state_);
    role->core.replayed = graph;
    flags_.has_work.store(true, std::memory_order_relaxed);
  }
  const std::vector<CapturedStep>& steps = graph->steps;
  for (size_t at = 0; at < steps.size();) {
    note_if_host_call_due(flags_);
    drive_.call_host_if_due();
    {
      const Role role(state_);
      const size_t stop = std::min(steps.size(), at + kStepsPerRole);
      at = role->replayer.make_steps(*graph, at, stop, is_known);
      if (at == stop) continue;
    }
    ensure_granted(bytes_to_reserve(*graph, steps[at]), nullptr);
    drive_.attempt_or_wait(
        [&](const Role& role) { return role->replayer.try_step(*graph, steps[at], is_known); });
    at += 1;
  }
  own_thread().wake_if_asleep();
}

int64_t Driver::allocate(uint64_t bytes, uint64_t* address, RunOutcomes* run) {
  if (bytes > 0) ensure_granted(rounded(bytes), run);
  int64_t task = kNone;
  attempt_or_wait(run, [&](const Role& role) {
    task = role->submitter.try_allocate(bytes, address, run);
    return task != kNone;
  });
  return task;
}

void Driver::scope_begin(RunOutcomes* run) {
  Role(state_)->submitter.scope_begin(run);
}

void Driver::scope_end(RunOutcomes* run) {
  Role(state_)->submitter.scope_end(run);
}

// ---- waits and questions ----

bool Driver::wait(int64_t task, uint64_t timeout_ns) {
  const auto has_ended = [&](const Role& role) { return role->core.book.has_ended(task); };
  if (has_ended(Role(state_))) return true;
  return drive_.wait_until(has_ended,
                           saturating_add(timeout_ns ? engine::monotonic_ns() : 0, timeout_ns),
                           PTO_TRACE_PARK);
}

bool Driver::watch(int64_t task) {
  {
    const Role role(state_, Role::kAsks);
    DriverCore& core = role->core;
    if (core.failure) std::rethrow_exception(std::exchange(core.failure, nullptr));
    if (!core.book.records.find(task)) return true;
    core.check_open();
    core.watches.add(task);
  }
  own_thread().drive_now();
  return false;
}

// ---- the end ----

void Driver::park() {
  refuse_inside();  // park() waits for the driver's own thread, which may wait for the role
  own_thread().park();
}

void Driver::stop(int64_t cause) {
  {
    const Role role(state_);
    if (flags_.is_closed) return;
    role->exchange.lose_all(cause);
    flags_.is_closed = true;
    role->core.watches.end_all();
  }
  engine::ring(drive_.progress().parent_bell());
  while (flags_.waiting.load() > drive_.waits_of_this_thread()) {
    host_.give_up();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    host_.take();
  }
  own_thread().stop();
}

void Driver::close() {
  // stop() waits for the driver's own thread, which may wait for the role
  if (!own_thread().is_own_thread()) refuse_inside();
  own_thread().stop();
  // On the driver's own thread, a caller further up the stack may hold the role. Then the
  // connections are freed with the driver.
  if (!own_thread().is_own_thread()) children_.detach_all();
}

}  // namespace pto::worker
