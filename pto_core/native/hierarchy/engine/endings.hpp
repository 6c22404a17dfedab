// How tasks become ready, end, fail, poison, run again and are consumed.
//
// Invariant after each call: whoever is PENDING has an unfinished producer. A poisoned task ends
// only when all its producers have: whoever is ordered after it is also ordered after them, and may
// have no edge of its own to them.
//
// References to slots hold throughout: nothing here takes a slot.
#pragma once

#include <cstdint>

#include "engine/core.hpp"

namespace pto::hierarchy {

class Endings {
 public:
  explicit Endings(Core& core) : core_(core) {}

  // Says what becomes of a task that is PENDING: it may be so for this moment only.
  void settle(uint32_t index);
  // Counts a member; the last one ends the attempt.
  void member_ended(uint32_t index, Outcome outcome, int64_t cause);
  // Counts a member of a group that was lost before it began. Where all were, the attempt costs
  // nothing; else it has failed.
  void member_never_began(uint32_t index, int64_t cause);
  // Lets a RUNNING task that is to run again, or never ran, wait anew, or end poisoned.
  void leave_child(uint32_t index);
  // Ends a task with its own failure.
  void fail(uint32_t index, int64_t cause);
  // Ends a task because a producer has failed, or because the run is cancelled.
  void poison(uint32_t index);
  // Queues the task to be sent early if it may follow its only unfinished producer.
  //
  // Asked whenever that may have come true: the task was submitted, made to wait or to run again, a
  // producer finished and left one, or a producer was sent (its consumers, ascending).
  void consider_early(uint32_t index);
  // Takes the reference SCOPE away.
  void leave_scope(uint32_t index);

 private:
  void settle_one(uint32_t index);
  void count_member(Slot& slot, Outcome outcome, int64_t cause);
  void end_attempt(uint32_t index);
  void leave_one(uint32_t index);
  void fail_one(uint32_t index, int64_t cause);
  void poison_one(uint32_t index);
  void end(uint32_t index, StateEvent event, Result result, int64_t cause, int64_t root);
  void tell_consumers();
  void tell(const Edge& edge, const Slot& producer, uint32_t producer_index, int32_t child);
  void drop_holds(Slot& slot);
  void consume_if_unreferenced(uint32_t index);
  void consume(uint32_t index);

  Core& core_;
  // Tasks that have ended and whose consumers have not been told, oldest first, by Slot::next.
  uint32_t first_finished_ = kNoSlot;
  uint32_t last_finished_ = kNoSlot;
};

}  // namespace pto::hierarchy
