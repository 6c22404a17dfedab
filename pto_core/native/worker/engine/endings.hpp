// The changes of a task's state: when it becomes ready, ends, fails, is poisoned, is retried, or is
// consumed.
//
// Invariant: after each call, every PENDING task has an unfinished producer or is delayed. A
// poisoned task ends only after all its producers have ended. So a task that waits for a poisoned
// task also runs after these producers, and needs no edges to them.
//
// References to slots stay valid, because no function here takes a slot.
#pragma once

#include <cstdint>

#include "engine/core.hpp"

namespace pto::worker {

class Endings {
 public:
  explicit Endings(EngineState& core) : core_(core) {}

  // Choose the next state of a PENDING task. Called when the task may no longer have to wait.
  void settle(uint32_t index);
  // Count a completed member. The last member ends the attempt.
  void member_ended(uint32_t index, Outcome outcome, int64_t cause);
  // Count a group member that was lost before it began. If no member of the group has begun, the
  // attempt uses up no retry; otherwise it has failed.
  void member_never_began(uint32_t index, int64_t cause);
  // Return a RUNNING task to PENDING because it must run again or never began. End the task if it
  // is poisoned.
  void leave_child(uint32_t index);
  // Cancel a task, which fails with this cause when its last producer has ended. Return false if
  // the task is in a child, where it gets no further attempt, or has ended.
  bool cancel(uint32_t index, int64_t cause);
  // See Engine::delay().
  void delay(uint32_t index, bool is_delayed);
  // End a task with its own failure.
  void fail(uint32_t index, int64_t cause);
  // End a task because a producer has failed, or because its run is cancelled.
  void poison(uint32_t index);
  // Queue the task for early sending if it may be sent before its only producer has finished.
  //
  // Called whenever this may have become possible: the task was submitted or must run again, only
  // one unfinished producer remains, or a producer was sent (then this is called for its consumers,
  // in ascending order).
  void consider_early(uint32_t index);
  // Drop the scope's reference to the task.
  void leave_scope(uint32_t index);

 private:
  void settle_one(uint32_t index);
  void count_member(Slot& slot, Outcome outcome, int64_t cause);
  void end_attempt(uint32_t index);
  void leave_one(uint32_t index);
  void fail_one(uint32_t index, int64_t cause);
  void poison_one(uint32_t index);
  void end(uint32_t index, TaskEvent event, Result result, int64_t cause, int64_t root);
  void notify_consumers();
  void notify(const Edge& edge, const Slot& producer, uint32_t producer_index, int32_t child);
  // Return whether the task runs once it waits for no producer.
  bool can_run(const Slot& slot) const {
    return slot.poison == kNotPoisoned && !slot.is_cancelled && !is_run_cancelled(slot);
  }
  // Return whether the run of an unfinished task is cancelled.
  bool is_run_cancelled(const Slot& slot) const {
    return core_.runs[slot.run].cancelled.has_value();
  }
  void trace_release(const Slot& producer, const Slot& slot);
  void drop_holds(Slot& slot);
  void consume_if_unreferenced(uint32_t index);
  void consume(uint32_t index);

  EngineState& core_;
  // the list of finished tasks that have not notified their consumers yet, oldest first, linked by
  // Slot::next
  uint32_t first_finished_ = kNoSlot;
  uint32_t last_finished_ = kNoSlot;
};

// The reports of children: completions, and the loss of a child.
class Reports {
 public:
  Reports(EngineState& core, Endings& endings) : core_(core), endings_(endings) {}

  // Report the completion of frames up to `count`. For an invalid report, throw and change nothing.
  void completed(int32_t child, uint64_t count, Outcome outcome, int64_t cause);
  // Mark the child as ready for frames.
  void ready(int32_t child);
  // Report the loss of a child: end or repeat the tasks of its frames in flight, oldest first. The
  // frames up to `started` had begun. For an invalid report, throw and change nothing.
  void lost(int32_t child, int64_t cause, uint64_t started, bool returns);
  // Permit that a frame of a single task is skipped, and the frames in flight that require it. If
  // there is no such frame, throw and change nothing.
  void withdraw(int32_t child, uint64_t count);
  // Take the task of a frame back, for which withdraw() was called, because it will not begin.
  void withdrawn(int32_t child, uint64_t count);
  // Return whether the task of a frame in flight, which has not begun, may run on another child.
  bool may_move(int32_t child, uint64_t count) const;
  // Report a timeout: request the end of the child if frame `count` is still in flight.
  void deadline(int32_t child, uint64_t count, int64_t cause);

 private:
  void check(const EngineChild& child, uint64_t count, Outcome outcome) const;
  void check_skip(const EngineChild& child, uint64_t count, bool is_skip) const;
  void member_lost(const InFlight& frame, int64_t cause, bool has_begun);
  EngineChild& child_of_single(int32_t child, uint64_t count);
  void permit_skip(Slot& slot);

  EngineState& core_;
  Endings& endings_;
};

}  // namespace pto::worker
