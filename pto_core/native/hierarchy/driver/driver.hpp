// The driver of a Worker: one engine, a link to each child, and the threads that drive them.
//
// Each submit and each wait drives for as long as the call takes. A thread of the driver's own
// drives when the program has done neither for a while, see background.hpp. The state is reached
// through a Role alone, see role.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "driver/child_control.hpp"
#include "driver/drive.hpp"
#include "driver/role.hpp"

namespace pto::hierarchy {

// Each call on a thread that holds what Host::give_up() gives up.
class Driver {
 public:
  Driver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine, Host& host);

  // The outcomes of the run that has begun. What it throws, it throws before.
  std::shared_ptr<RunOutcomes> run_begin(Hazards hazards);
  // Waits for all tasks. Refuses, and the run goes on, where a scope is open; those of a cancelled
  // run are ended here. What Host::look() throws cancels, waits `patience_ns` for what runs, ends
  // the children of what then still does, and is thrown on. `is_interrupted`: something has been
  // thrown before, so the same is done at once.
  void run_end(bool is_interrupted = false);
  void cancel(int64_t cause);

  // The number of the task. Throws Refusal, DeadlockFound, or what Host::look() throws while it
  // waits for free space; then nothing has changed.
  int64_t submit(const Call& call);
  // `count` tasks; `prepare(i)` makes `call` that of task i. `made` follows: where it throws, those
  // before have been submitted.
  void submit_each(const Call& call, int64_t count, const std::function<void(int64_t)>& prepare,
                   TaskRange& made);
  // Makes all submits of a graph, whose bases say where its arguments lie. `is_known`: they lie
  // apart, so that the edges are those of the capture. Throws as submit() does, in the middle.
  void replay(std::shared_ptr<CapturedGraph> graph, bool is_known);
  int64_t allocate(uint64_t bytes, uint64_t* address);
  void scope_begin();
  void scope_end();

  // Whether the task has ended, within `timeout_ns`.
  bool wait(int64_t task, uint64_t timeout_ns);
  // For event loops, which first get the descriptor of the Watches. Returns true where the task has
  // ended. Else its end is watched. Throws as a wait does.
  bool watch(int64_t task);

  // The role, for questions: the driver's own thread goes on driving.
  Role ask() { return Role(state_, Role::kAsks); }
  int64_t add_cause(std::string data) { return ask()->core.book.add_cause(std::move(data)); }
  ChildControl& children() { return children_; }
  Background& own_thread() { return drive_.background(); }
  const SharedFlags& flags() const { return flags_; }
  const DriverConfiguration& configuration() const { return configuration_; }

  // Throws Refusal where this thread has the role: it is in a call of the driver.
  void refuse_inside() const { state_.refuse_inside(); }
  // Throws Refusal (closed) after stop().
  void check_open() const;
  // Around a fork, with own_thread().unpark(): the driver's own thread stands at a safe point
  // between the two.
  void park();
  // Ends a run that is open: what was in flight is lost for this cause, and nothing starts any
  // more. Waiting threads return: with the end of their task, or with Refusal (closed), which each
  // later submit and wait gets, too. When this returns no thread uses the board.
  void stop(int64_t cause);
  // After stop(), or without it where no other thread uses the driver.
  void close();

 private:
  void ensure_granted(uint64_t bytes);
  bool wait_for_run(uint64_t timeout_ns);
  void end_interrupted();

  const DriverConfiguration configuration_;
  SharedFlags flags_;
  Host& host_;
  GuardedState state_;
  Drive drive_;
  ChildControl children_;
  bool is_cancelled_ = false;  // the run; the role's
};

}  // namespace pto::hierarchy
