// The driver of a Worker: one engine, a link to each child, and the threads that drive them.
//
// Each submit and each wait also drives. If the program has not submitted or waited for a while,
// the driver's own thread drives; see drive.hpp. The state is reachable only through a Role;
// see role.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "driver/drive.hpp"
#include "driver/role.hpp"

namespace pto::worker {

// The host's interface to the children of a driver: it changes their state and sends control
// frames.
class ChildControl {
 public:
  explicit ChildControl(WorkerDrive& drive) : drive_(drive) {}

  // Take ownership of the end. Called before the child is ready, and again before a restarted child
  // is ready.
  void attach(int32_t child, const pto_transport_api* api, pto_parent_end* end,
              uint32_t largest_frame_bytes, bool is_python);
  void detach_all();
  void set_ready(int32_t child);
  // Called when the process of the child has ended. Handles the last answers of the process, then
  // reports the loss. `returns`: attach() and set_ready() will follow, because the child is
  // restarted.
  void lose(int32_t child, int64_t cause, bool returns);
  // Send a control frame. Return a number, which is passed to reply() to get the answer.
  uint64_t control(int32_t child, std::string data);
  // Wait for the reply to a control frame, and return it once. Return kPending after `timeout_ns`.
  ReplyState reply(uint64_t number, uint64_t timeout_ns, std::string* data);

 private:
  WorkerDrive& drive_;
};

// Call each method on a thread that holds the resources of the program (the GIL; see
// Host::give_up()).
class Driver {
 public:
  Driver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine, Host& host);

  // Begin a run. Several runs can be open at once, if their hazards are equal. Return the object
  // that records its outcomes. If this throws, no run has begun.
  std::shared_ptr<RunOutcomes> run_begin(Hazards hazards);
  // Wait for all tasks and end the run. If a scope is open, throw Refusal, and the run continues;
  // scopes of a cancelled run are ended. An exception of Host::attend() cancels the run: running
  // tasks get `patience_ns`, then their children are killed, and the exception is rethrown.
  // `is_interrupted`: such an exception was thrown before this call, so cancel the run at once. Do
  // the same without an exception once RunOutcomes::is_interrupted is true.
  // `run`: null stands for the run that began last.
  void run_end(bool is_interrupted = false, std::shared_ptr<RunOutcomes> run = nullptr);
  // Cancel a run, or all open runs if `run` is null. Tasks that have not begun do not run.
  void cancel(int64_t cause, RunOutcomes* run = nullptr);

  // Submit a task. Return its number. Throws Refusal, DeadlockFound, or an exception of
  // Host::attend() during a wait for free space; then nothing has changed.
  int64_t submit(const Submission& submission);
  // Submit `count` tasks. `prepare(i)` changes `submission` to that of task i. `made` receives the
  // range of the submitted tasks, even if this throws.
  void submit_each(const Submission& submission, int64_t count,
                   const std::function<void(int64_t)>& prepare, TaskRange& made);
  // Submit all tasks of a graph. The caller has set the bases of its arguments. `is_known`: the
  // arguments are disjoint, so the captured edges hold. Throws the same exceptions as submit(),
  // possibly after some of the submits.
  void replay(std::shared_ptr<CapturedGraph> graph, bool is_known);
  // `run`: the run that the call belongs to; null stands for the run that began last.
  int64_t allocate(uint64_t bytes, uint64_t* address, RunOutcomes* run = nullptr);
  void scope_begin(RunOutcomes* run = nullptr);
  void scope_end(RunOutcomes* run = nullptr);

  // Wait for the task. Return false if it has not ended after `timeout_ns`.
  bool wait(int64_t task, uint64_t timeout_ns);
  // For event loops, which first get the descriptor of the Watches. Return true if the task has
  // ended; otherwise the Watches will report its end. Throws the same exceptions as wait().
  bool watch(int64_t task);

  // Take the role for a query. The driver's own thread continues to drive.
  Role ask() { return Role(state_, Role::kAsks); }
  int64_t add_cause(std::string data) { return ask()->core.book.add_cause(std::move(data)); }
  ChildControl& children() { return children_; }
  Background& own_thread() { return drive_.background(); }
  const SharedFlags& flags() const { return flags_; }
  const DriverConfiguration& configuration() const { return configuration_; }

  // Throw Refusal if this thread already has the role, that is, if it is inside a call of the
  // driver.
  void refuse_inside() const { state_.refuse_inside(); }
  // Throws Refusal (closed) after stop().
  void check_open() const;
  // Park the driver's own thread at a safe point for a fork, until own_thread().unpark().
  void park();
  // End the open runs. Frames in flight are counted as lost with `cause` as the reason, and no
  // further task starts. A waiting thread returns if its task has ended; otherwise it throws
  // Refusal (closed). Later submits and waits also throw it. When this returns, no thread uses the
  // progress table.
  void stop(int64_t cause);
  // Close the connections. Call this after stop(), or without stop() if no other thread uses the
  // driver.
  void close();

 private:
  void ensure_granted(uint64_t bytes, RunOutcomes* run);
  // Call `attempt(role)` until it returns true, and wait for free space between the calls.
  template <class Attempt>
  void attempt_or_wait(RunOutcomes* run, Attempt attempt);
  void end_interrupted(RunOutcomes& run);

  const DriverConfiguration configuration_;
  SharedFlags flags_;
  Host& host_;
  GuardedState state_;
  WorkerDrive drive_;
  ChildControl children_;
};

}  // namespace pto::worker
