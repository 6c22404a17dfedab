// Waits for a run in slices, to handle signals and time limits between them.

#include <algorithm>
#include "clock.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "run.hpp"

namespace pto::core {
namespace {

constexpr uint64_t kSlice = 50'000'000;
// After a stop, running kernels must return within this time (in nanoseconds); otherwise the device
// is lost.
constexpr uint64_t kPatience = 2'000'000'000;

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

}  // namespace

// Return whether the run is over.
bool Run::wait_slice(uint64_t nanoseconds) {
  ReleasedGil released;
  const pto_status status =
      device_.backend()->wait(device_.handle(), static_cast<int64_t>(nanoseconds));
  return status != PTO_PENDING;
}

void Run::wait_until_over() {
  if (interruption_.is_valid() || is_late_ || late_task_) return drain();
  const uint64_t task_limit = task_limit_ns();
  uint64_t passed = now_ns() - begin_ns_;
  // a Python orchestration returned after the time limit
  if (passed >= limit_ns_) {
    is_late_ = true;
    stop("the time limit of the run has passed");
    return drain();
  }
  while (true) {
    const uint64_t left = limit_ns_ - std::min(limit_ns_, passed);
    const uint64_t slice = std::min({kSlice, left, task_limit / 4 + 1});
    if (wait_slice(slice)) return;
    if (PyErr_CheckSignals() != 0) {
      interruption_ = take_exception();
      stop("the run was interrupted");
      return drain();
    }
    passed = now_ns() - begin_ns_;
    const pto_activity_page* page = device_.backend()->activity(device_.handle());
    if (task_limit != UINT64_MAX)
      late_task_ = watch_.find_late(page, begin_ns_ + passed, task_limit);
    if (late_task_ || passed >= limit_ns_) {
      is_late_ = !late_task_;
      stop("the time limit of the run has passed");
      return drain();
    }
  }
}

uint64_t Run::task_limit_ns() const {
  return settings_.task_timeout_s ? nanoseconds_of(*settings_.task_timeout_s) : UINT64_MAX;
}

void Run::attend() {
  if (was_stopped_) return;
  const PyGILState_STATE state = or_park([] { return PyGILState_Ensure(); });
  if (PyErr_CheckSignals() != 0) {
    interruption_ = take_exception();
    stop("the run was interrupted");
  } else if (now_ns() - begin_ns_ >= limit_ns_) {
    is_late_ = true;
    stop("the time limit of the run has passed");
  } else if (const uint64_t limit = task_limit_ns(); limit != UINT64_MAX) {
    late_task_ = watch_.find_late(device_.backend()->activity(device_.handle()), now_ns(), limit);
    if (late_task_) stop("the time limit of a task has passed");
  }
  PyGILState_Release(state);
}

void Run::check_time() {
  if (!is_late_ && !late_task_ && now_ns() - begin_ns_ < limit_ns_) return;
  if (!is_late_ && !late_task_) {
    is_late_ = true;
    stop("the time limit of the run has passed");
  }
  raise_late();
}

// Raise the exception for the time limit. Every call raises the same object.
void Run::raise_late() {
  if (!raised_late_.is_valid()) {
    try {
      raise_timeout();
    } catch (nb::python_error& error) {
      raised_late_ = nb::borrow(error.value());
    }
  }
  raise_exception(raised_late_);
}

void Run::stop(const char* why) {
  was_stopped_ = true;
  const pto_error cause = make_error(PTO_ERROR_ABORTED, why);
  ReleasedGil released;
  device_.backend()->abort(device_.handle(), &cause, 0);
}

// After a stop, wait a bounded time for running kernels. A second signal ends the wait.
void Run::drain() {
  const uint64_t begin = now_ns();
  while (now_ns() - begin < kPatience) {
    if (wait_slice(kSlice)) return;
    if (PyErr_CheckSignals() != 0) {
      nb::object another = take_exception();
      if (!interruption_.is_valid()) interruption_ = std::move(another);
      break;
    }
  }
  give_up();
}

void Run::give_up() {
  const auto running = running_tasks(device_.backend()->activity(device_.handle()));
  stuck_task_ = running.empty() ? RunningTask{UINT64_MAX, -1, -1, 0, 0, 0} : running.front();
  device_.mark_lost();
  const pto_error cause = make_error(PTO_ERROR_LOST, "a kernel did not return");
  {
    ReleasedGil released;
    device_.backend()->abort(device_.handle(), &cause, 1);
  }
  while (!wait_slice(kSlice)) {
  }
}

void Run::raise_timeout() {
  const std::optional<RunningTask>& culprit = stuck_task_ ? stuck_task_ : late_task_;
  const double limit = late_task_ ? *settings_.task_timeout_s : *settings_.timeout_s;
  nb::dict fields;
  fields["timeout_s"] = limit;
  if (!culprit || culprit->func_id < 0) {
    raise_error("RunTimeoutError",
                "the run of '" + program_.name + "' took longer than its limit of " +
                    seconds_text(limit) + " and was ended; increase timeout_s or reduce the work",
                fields);
  }
  const std::string name = kernel_name(culprit->func_id);
  fields["task"] = culprit->task;
  fields["func_id"] = culprit->func_id;
  fields["core"] = culprit->core;
  fields["kernel"] = name;
  raise_error("TaskTimeoutError",
              describe(*culprit) + " did not return within " + seconds_text(limit) +
                  (stuck_task_ ? "; the device is lost: close it and open another"
                               : "; increase task_timeout_s or make the kernel shorter"),
              fields);
}

}  // namespace pto::core
