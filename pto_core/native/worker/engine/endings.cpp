#include "engine/endings.hpp"

#include <string>

#include "trace/tracer.hpp"

namespace pto::worker {

void Endings::settle(uint32_t index) {
  const Slot& slot = core_.slots[index];
  if (core_.tracer && slot.unfinished == 0 && can_run(slot))
    core_.tracer->ready(slot.number, kNone);
  settle_one(index);
  notify_consumers();
}

void Endings::member_ended(uint32_t index, Outcome outcome, int64_t cause) {
  Slot& slot = core_.slots[index];
  slot.has_begun = true;
  count_member(slot, outcome, cause);
  if (slot.ended == slot.members) end_attempt(index);
  notify_consumers();
}

void Endings::member_never_began(uint32_t index, int64_t cause) {
  Slot& slot = core_.slots[index];
  count_member(slot, Outcome::kFailed, cause);
  if (slot.ended == slot.members) end_attempt(index);
  notify_consumers();
}

void Endings::count_member(Slot& slot, Outcome outcome, int64_t cause) {
  ++slot.ended;
  if (outcome == Outcome::kFailed && !slot.has_failure) {
    slot.has_failure = true;
    slot.failure = cause;
  }
  slot.was_skipped = slot.was_skipped || outcome == Outcome::kSkipped;
}

void Endings::leave_child(uint32_t index) {
  leave_one(index);
  notify_consumers();
}

void Endings::fail(uint32_t index, int64_t cause) {
  fail_one(index, cause);
  notify_consumers();
}

void Endings::poison(uint32_t index) {
  poison_one(index);
  notify_consumers();
}

bool Endings::cancel(uint32_t index, int64_t cause) {
  Slot& slot = core_.slots[index];
  if (slot.is_cancelled) return true;
  if (slot.state == TaskState::kRunning) slot.attempts = 0;
  if (slot.state != TaskState::kPending && slot.state != TaskState::kReady) return false;
  core_.queues.remove(slot);
  slot.is_cancelled = true;
  slot.failure = cause;
  if (slot.state == TaskState::kReady) {
    fail(index, cause);
  } else if (slot.unfinished == 0) {  // delayed
    settle_one(index);
    notify_consumers();
  }
  return true;
}

void Endings::delay(uint32_t index, bool is_delayed) {
  Slot& slot = core_.slots[index];
  if (is_delayed) {
    if (slot.state == TaskState::kRunning && slot.attempts > 0)
      core_.queues.set_delayed(slot, true);
  } else if (slot.is_delayed) {
    core_.queues.set_delayed(slot, false);
    if (slot.state == TaskState::kPending) settle_one(index);
  }
}

void Endings::consider_early(uint32_t index) {
  Slot& slot = core_.slots[index];
  // A task is sent early only if neither it nor its producer is a group or has retries, and if a
  // failure of the producer poisons it.
  if (slot.unfinished != 1 || slot.poisoning != 1 || slot.state != TaskState::kPending) return;
  if (slot.members != 1 || slot.has_retries) return;
  Slot& producer = core_.slots[slot.unfinished_sum];
  if (producer.state != TaskState::kRunning || producer.members != 1 || producer.has_retries)
    return;
  if (producer.may_be_skipped || !can_run(slot)) return;
  if (slot.is_pinned) return core_.queues.add_early(index, slot.pin);
  if (slot.kind != producer.kind) return;
  // Of several consumers without a pin, send only the first early.
  if (producer.follower != kNoSlot && producer.follower != index) return;
  producer.follower = index;
  core_.queues.add_early(index, producer.child);
}

void Endings::leave_scope(uint32_t index) {
  core_.slots[index].is_in_scope = false;
  consume_if_unreferenced(index);
}

void Endings::settle_one(uint32_t index) {
  Slot& slot = core_.slots[index];
  if (slot.unfinished > 0) {
    consider_early(index);
  } else if (slot.poison != kNotPoisoned || is_run_cancelled(slot)) {
    poison_one(index);
  } else if (slot.is_cancelled) {
    core_.slots.move(slot, TaskEvent::kSatisfy);
    fail_one(index, slot.failure);
  } else if (!slot.is_delayed) {
    core_.slots.move(slot, TaskEvent::kSatisfy);
    core_.queues.add_ready(index);
  }
}

// Called when all members have ended. If the task was sent early, the completion of its producer
// may be reported later.
void Endings::end_attempt(uint32_t index) {
  Slot& slot = core_.slots[index];
  if (slot.was_skipped) {
    leave_one(index);
  } else if (slot.unfinished > 0) {
    return;
  } else if (slot.poison != kNotPoisoned) {
    poison_one(index);
  } else if (!slot.has_begun) {
    leave_one(index);
  } else if (!slot.has_failure) {
    end(index, TaskEvent::kFinish, Result::kCompleted, kNone, kNone);
  } else if (slot.attempts > 0 && !is_run_cancelled(slot)) {
    --slot.attempts;
    leave_one(index);
  } else {
    fail_one(index, slot.failure);
  }
}

void Endings::leave_one(uint32_t index) {
  Slot& slot = core_.slots[index];
  if (slot.poison != kNotPoisoned) return poison_one(index);
  slot.ended = 0;
  slot.has_failure = false;
  slot.has_begun = false;
  slot.was_skipped = false;
  slot.may_be_skipped = false;
  slot.child = static_cast<int32_t>(kNone);
  for (uint32_t member = 0; slot.members > 1 && member < slot.members; ++member) {
    core_.group(slot)[member].child = static_cast<int32_t>(kNone);
  }
  core_.slots.move(slot, TaskEvent::kRepeat);
  for (uint32_t edge = slot.consumers; edge != kNoEdge; edge = core_.edges[edge].next_consumer) {
    core_.queues.remove(core_.slots[core_.edges[edge].consumer]);
  }
  settle_one(index);
}

void Endings::fail_one(uint32_t index, int64_t cause) {
  Slot& slot = core_.slots[index];
  core_.roots[slot.number] = slot.number;
  core_.runs[slot.run].failed.emplace_back(slot.number, cause);
  slot.has_root = true;
  slot.failure = slot.number;
  end(index, TaskEvent::kFail, Result::kFailed, cause, kNone);
}

void Endings::poison_one(uint32_t index) {
  Slot& slot = core_.slots[index];
  const int64_t root = slot.poison == kNotPoisoned ? kNone : slot.poison;
  EngineRun& run = core_.runs[slot.run];
  const int64_t cause = root == kNone ? run.cancelled.value_or(kNone) : kNone;
  core_.roots[slot.number] = root;
  run.poisoned.emplace_back(slot.number, root);
  slot.has_root = true;
  slot.failure = root;
  end(index, TaskEvent::kPoison, Result::kPoisoned, cause, root);
}

void Endings::end(uint32_t index, TaskEvent event, Result result, int64_t cause, int64_t root) {
  Slot& slot = core_.slots[index];
  core_.slots.move(slot, event);
  core_.queues.remove(slot);
  core_.queues.set_delayed(slot, false);
  --core_.runs[slot.run].unfinished;
  Instruction finished = instruction(Instruction::What::kTaskFinished, slot.number);
  finished.result = result;
  finished.cause = cause;
  finished.root = root;
  core_.out->push_back(finished);
  if (slot.has_saved) {
    core_.out->push_back(instruction(Instruction::What::kDropRegions, slot.number));
  }
  slot.next = kNoSlot;
  (first_finished_ == kNoSlot ? first_finished_ : core_.slots[last_finished_].next) = index;
  last_finished_ = index;
}

// Notify the consumers of finished tasks, breadth first: a poisoned task notifies its consumers
// only after all tasks that ended earlier have notified theirs.
void Endings::notify_consumers() {
  while (first_finished_ != kNoSlot) {
    const uint32_t index = first_finished_;
    Slot& slot = core_.slots[index];
    const int32_t child = slot.members > 1 ? core_.group(slot)[0].child : slot.child;
    uint32_t edge = slot.consumers;
    slot.consumers = slot.last_consumer = kNoEdge;
    while (edge != kNoEdge) {
      Edge& waiting = core_.edges[edge];
      const uint32_t next = waiting.next_consumer;
      notify(waiting, slot, index, child);
      waiting.is_waited_for = false;
      if ((waiting.why & kData) == 0) core_.edges.give_back(edge);
      edge = next;
    }
    first_finished_ = slot.next;
    drop_holds(slot);
    slot.is_unfinished = false;
    consume_if_unreferenced(index);
  }
}

void Endings::notify(const Edge& edge, const Slot& producer, uint32_t producer_index,
                     int32_t child) {
  Slot& slot = core_.slots[edge.consumer];
  if (slot.unfinished == 0) {
    throw Refusal(Refusal::Kind::kInternal,
                  "task " + std::to_string(slot.number) + " has no producer and is notified");
  }
  --slot.unfinished;
  slot.unfinished_sum ^= producer_index;
  slot.poisoning -= poisons(edge.why);
  core_.queues.remove(slot);
  if (producer.has_root && slot.poison == kNotPoisoned && poisons(edge.why)) {
    slot.poison = producer.failure;
  }
  if (core_.tracer) trace_release(producer, slot);
  if (child != kNone) slot.last_producer = child;
  if (slot.state == TaskState::kPending) {
    settle_one(edge.consumer);
  } else if (slot.state == TaskState::kRunning && slot.ended == slot.members) {
    end_attempt(edge.consumer);
  }
}

void Endings::trace_release(const Slot& producer, const Slot& slot) {
  Tracer& tracer = *core_.tracer;
  if (tracer.records(PTO_TRACE_EDGES))
    tracer.add(kSchedulerTrack, PTO_TRACE_RELEASE, static_cast<uint64_t>(producer.number),
               static_cast<uint64_t>(slot.number));
  if (slot.unfinished == 0 && can_run(slot)) tracer.ready(slot.number, producer.number);
}

// Drop the references that a finished task holds to its producers. A producer without references is
// consumed. It has finished, so it has no consumers to notify.
void Endings::drop_holds(Slot& slot) {
  uint32_t edge = slot.holds;
  slot.holds = kNoEdge;
  while (edge != kNoEdge) {
    const Edge held = core_.edges[edge];
    Slot& producer = core_.slots[held.producer];
    --((held.why & kOwner) != 0 ? producer.owner_count : producer.consumer_count);
    core_.edges.give_back(edge);
    consume_if_unreferenced(held.producer);
    edge = held.next_hold;
  }
}

void Endings::consume_if_unreferenced(uint32_t index) {
  const Slot& slot = core_.slots[index];
  const bool is_kept = slot.is_unfinished || slot.is_in_scope;
  if (!is_kept && (slot.consumer_count | slot.owner_count) == 0) consume(index);
}

// The outputs of a failed task stay in the region map, so that later tasks that read them are
// poisoned.
void Endings::consume(uint32_t index) {
  Slot& slot = core_.slots[index];
  core_.slots.move(slot, TaskEvent::kRelease);
  core_.regions.release(slot);
  if (slot.slab_ring != kNoRing && core_.rings[slot.slab_ring].release(slot.slab)) {
    core_.freed_rings |= 1u << slot.slab_ring;
  }
  if (slot.members > 1) core_.members.give_back(slot.pin, slot.members);
  core_.slots.give_back(index);
}

namespace {

[[noreturn]] void refuse_report(const std::string& text) {
  throw Refusal(Refusal::Kind::kProtocol, text);
}

std::string name_of(const EngineChild& child) {
  return "child " + std::to_string(child.number);
}

std::string text_of_requirement(const InFlight& frame) {
  if (frame.required_child == kNone) return "None";
  return "Requirement(child=" + std::to_string(frame.required_child) +
         ", count=" + std::to_string(frame.required_count) + ")";
}

}  // namespace

void Reports::completed(int32_t number, uint64_t count, Outcome outcome, int64_t cause) {
  EngineChild& child = core_.children.reported(number);
  check(child, count, outcome);
  while (child.completed < count) {
    const uint32_t slot = child.complete().slot;
    if (slot == kNoSlot) continue;
    endings_.member_ended(slot, child.completed == count ? outcome : Outcome::kSucceeded, cause);
  }
}

void Reports::check(const EngineChild& child, uint64_t count, Outcome outcome) const {
  if (child.state != EngineChildState::kReady) {
    refuse_report(name_of(child) + " is " + kChildStateNames[static_cast<uint8_t>(child.state)] +
                  " and reports frame " + std::to_string(count));
  }
  if (count <= child.completed || count > child.sent) {
    refuse_report(name_of(child) + " reports frame " + std::to_string(count) + "; " +
                  std::to_string(child.completed) + " have completed and " +
                  std::to_string(child.sent) + " were sent");
  }
  // Only frames with a requirement can be poisoned, so no other frames need this check, unless they
  // were withdrawn.
  if ((child.early | child.withdrawn) == 0 && outcome != Outcome::kSkipped) return;
  for (uint64_t each = child.completed + 1; each <= count; ++each) {
    check_skip(child, each, each == count && outcome == Outcome::kSkipped);
  }
}

// A child may skip a frame only if the driver asked for it, or if the requirement of the frame
// failed or was lost. A child sees completions of other children before the engine does, so a
// requirement that was not reported yet may have succeeded or failed.
void Reports::check_skip(const EngineChild& child, uint64_t count, bool is_skip) const {
  const InFlight& frame = child.frame(count);
  if (frame.slot == kNoSlot) {
    if (is_skip) return;
    refuse_report(name_of(child) + " ran frame " + std::to_string(count) + ", which was withdrawn");
  }
  const Slot& slot = core_.slots[frame.slot];
  const bool is_required = frame.required_child != kNone;
  const bool is_lost =
      is_required && core_.children[frame.required_child].has_lost(frame.required_count);
  const bool is_poisoned = slot.poison != kNotPoisoned;
  const bool may_skip =
      slot.may_be_skipped || (is_required && (is_lost || is_poisoned || slot.unfinished > 0));
  const bool may_run = !is_poisoned && !is_lost;
  if (is_skip && !may_skip) {
    refuse_report(name_of(child) + " skipped frame " + std::to_string(count) +
                  ", whose requirement " + text_of_requirement(frame) + " has not failed");
  }
  if (!is_skip && !may_run) {
    refuse_report(name_of(child) + " ran frame " + std::to_string(count) + ", whose requirement " +
                  text_of_requirement(frame) + " has failed");
  }
}

void Reports::ready(int32_t number) {
  EngineChild& child = core_.children.reported(number);
  if (child.state == EngineChildState::kReady) refuse_report(name_of(child) + " is ready already");
  child.state = EngineChildState::kReady;
}

void Reports::lost(int32_t number, int64_t cause, uint64_t started, bool returns) {
  EngineChild& child = core_.children.reported(number);
  if (child.state == EngineChildState::kLost) refuse_report(name_of(child) + " is lost already");
  if (started < child.completed || started > child.sent) {
    refuse_report(name_of(child) + " is lost with " + std::to_string(started) + " frames begun; " +
                  std::to_string(child.completed) + " have completed and " +
                  std::to_string(child.sent) + " were sent");
  }
  child.state = returns ? EngineChildState::kExpected : EngineChildState::kLost;
  child.cause = cause;
  const uint64_t first = child.completed + 1;
  child.lose();
  for (uint64_t count = first; count <= child.sent; ++count) {
    if (child.frame(count).slot == kNoSlot) continue;
    member_lost(child.frame(count), child.deadline(count, cause), count <= started);
  }
  child.forget_deadlines();
}

// A task that had not begun can always be sent again. A group can be sent again only if no member
// had begun, because a group is never repeated in part.
void Reports::member_lost(const InFlight& frame, int64_t cause, bool has_begun) {
  Slot& slot = core_.slots[frame.slot];
  const bool goes_again = core_.configuration.repeats_lost && !has_begun;
  if (slot.poison != kNotPoisoned || (goes_again && slot.members == 1)) {
    endings_.leave_child(frame.slot);
  } else if (goes_again) {
    endings_.member_never_began(frame.slot, cause);
  } else {
    if (!core_.configuration.repeats_lost) slot.attempts = 0;
    endings_.member_ended(frame.slot, Outcome::kFailed, cause);
  }
}

void Reports::withdraw(int32_t number, uint64_t count) {
  permit_skip(core_.slots[child_of_single(number, count).frame(count).slot]);
}

void Reports::permit_skip(Slot& slot) {
  slot.may_be_skipped = true;
  for (uint32_t edge = slot.consumers; edge != kNoEdge; edge = core_.edges[edge].next_consumer) {
    Slot& consumer = core_.slots[core_.edges[edge].consumer];
    core_.queues.remove_early(consumer);
    if (consumer.state == TaskState::kRunning) permit_skip(consumer);
  }
}

void Reports::withdrawn(int32_t number, uint64_t count) {
  EngineChild& child = child_of_single(number, count);
  if (!core_.slots[child.frame(count).slot].may_be_skipped) {
    refuse_report("frame " + std::to_string(count) + " of " + name_of(child) +
                  " was not withdrawn");
  }
  endings_.leave_child(child.withdraw(count));
}

EngineChild& Reports::child_of_single(int32_t number, uint64_t count) {
  EngineChild& child = core_.children.reported(number);
  const bool is_in_flight = count > child.completed && count <= child.sent;
  const uint32_t slot = is_in_flight ? child.frame(count).slot : kNoSlot;
  if (slot == kNoSlot || core_.slots[slot].members != 1) {
    refuse_report("frame " + std::to_string(count) + " of " + name_of(child) +
                  " is not in flight, or its task is a group");
  }
  return child;
}

// Saved regions are not restored without need.
bool Reports::may_move(int32_t number, uint64_t count) const {
  const uint32_t index = core_.children[number].frame(count).slot;
  if (index == kNoSlot) return false;
  const Slot& slot = core_.slots[index];
  return slot.members == 1 && slot.pin == kNone && !slot.keeps_regions && !slot.may_be_skipped;
}

void Reports::deadline(int32_t number, uint64_t count, int64_t cause) {
  EngineChild& child = core_.children.reported(number);
  if (count < 1 || count > child.sent) {
    refuse_report("a deadline for frame " + std::to_string(count) + " of " + name_of(child) +
                  ", but only " + std::to_string(child.sent) + " frames were sent to it");
  }
  if (count <= child.completed || !child.add_deadline(count, cause)) return;
  Instruction end = instruction(Instruction::What::kEndChild, kNone);
  end.child = number;
  end.cause = cause;
  core_.out->push_back(end);
}

}  // namespace pto::worker
