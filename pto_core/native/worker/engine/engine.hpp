// The engine of a Worker's runs: takes events from the driver and returns instructions.
//
// It has no clock and no thread, and never accesses the memory that it allocates. Only one thread
// at a time may call it. The calls append instructions to `out`, which the caller clears. A call
// that breaks a rule throws Refusal and changes nothing. Property tests drive it and the reference
// engine, pto_devkit.engine, with the same events and compare every answer and snapshot.
#pragma once

#include <memory>

#include "engine/interface.hpp"
#include "engine/slots.hpp"
#include "engine/snapshot.hpp"

namespace pto::worker {

class Tracer;

class Engine {
 public:
  // Throws Refusal for an invalid configuration. An empty policy selects the child with the fewest
  // frames in flight.
  explicit Engine(const Configuration& configuration, Policy policy = {});
  virtual ~Engine();

  // Several runs can be open at once, if they have the same hazards. Each has its own scopes, end
  // and failures, and its tasks also wait for tasks of other runs. A failure poisons tasks of other
  // runs until its own run has ended. Return the number of the run:
  // the smallest that no open run has.
  uint32_t run_begin(Hazards hazards, Instructions& out);
  void run_end(Instructions& out, uint32_t run = 0);
  Submitted submit(const Submission& submission, Instructions& out);
  // The program no longer repeats the blocked submit of this run.
  void give_up(uint32_t run);
  void scope_begin(uint32_t run = 0);
  void scope_end(Instructions& out, uint32_t run = 0);
  // Send all tasks that can be sent. No other call sends tasks.
  void dispatch(Instructions& out);
  void child_ready(int32_t child, Instructions& out);
  // `started`: the last frame that had begun in the child. Only the tasks of frames up to `started`
  // use up a retry.
  void child_lost(int32_t child, int64_t cause, uint64_t started, bool returns, Instructions& out);
  void deadline(int32_t child, uint64_t count, int64_t cause, Instructions& out);
  // Cancel a run. Tasks that were not sent yet, or are submitted later, do not run.
  void cancel(int64_t cause, Instructions& out, uint32_t run = 0);
  // Cancel one task, which fails with this cause when its last producer has ended. Return false if
  // it is in a child, where it gets no further attempt, or has ended.
  bool cancel_task(int64_t task, int64_t cause, Instructions& out);
  // With `is_delayed`, a task in a child that may run again does not begin its next attempt until a
  // call with false. No effect on other tasks.
  void delay(int64_t task, bool is_delayed, Instructions& out);
  // Called after the child was asked not to begin the frame of a single task. The child may skip
  // the frame from now on.
  void withdraw(int32_t child, uint64_t count, Instructions& out);
  // Called if it is certain that a frame, for which withdraw() was called, will not begin. Its task
  // can be sent again; the frame stays in flight without a task until the child reports it.
  void withdrawn(int32_t child, uint64_t count, Instructions& out);

  // Virtual for tests, which count or delay these events.
  virtual Submitted allocate(uint64_t bytes, uint64_t* address, Instructions& out,
                             uint32_t run = 0);
  virtual void completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause,
                          Instructions& out);

  // Return whether tasks that were sent to a child may run on another child.
  bool can_tasks_move() const;
  // Return whether the task of this frame in flight may run on another child, if it has not begun.
  bool may_move(int32_t child, uint64_t count) const;

  // Return whether no frame is in flight and no task is ready or delayed, so that only another call
  // of a submitter can change the state.
  bool is_quiescent() const;
  // Return whether the last submit of the run is blocked and can never succeed: the last submits of
  // all other runs are blocked too. If so, fill in `proof`.
  bool deadlock(Deadlock* proof, uint32_t run = 0) const;
  // Return the failures of a run as (task, cause), first failure first, and its poisoned tasks as
  // (task, root). The numbers of a finished run are valid until the next run begins.
  std::vector<std::pair<int64_t, int64_t>> failures(uint32_t run = 0) const;
  std::vector<std::pair<int64_t, int64_t>> poisonings(uint32_t run = 0) const;

  // Report dependencies to `tracer` from now on; to none if it is null.
  void set_tracer(Tracer* tracer);

  // Return the edges and owners of the last submit, by task number, for a capture.
  void report_found(std::vector<std::pair<int64_t, uint8_t>>* producers,
                    std::vector<int64_t>* owners) const;
  Snapshot snapshot() const;
  // Throw kInternal if an invariant does not hold. Slow; for tests.
  void validate() const;

 private:
  struct Parts;

  void begin_event(Instructions& out);
  void end_event();

  std::unique_ptr<Parts> parts_;
};

}  // namespace pto::worker
