#include "engine/reports.hpp"

#include <string>

namespace pto::hierarchy {
namespace {

[[noreturn]] void refuse_report(const std::string& text) {
  throw Refusal(Refusal::Kind::kProtocol, text);
}

std::string name_of(const Child& child) {
  return "child " + std::to_string(child.number);
}

std::string text_of_requirement(const InFlight& frame) {
  if (frame.required_child == kNone) return "None";
  return "Requirement(child=" + std::to_string(frame.required_child) +
         ", count=" + std::to_string(frame.required_count) + ")";
}

}  // namespace

void Reports::completed(int32_t number, uint64_t count, Outcome outcome, int64_t cause) {
  Child& child = core_.children.reported(number);
  check(child, count, outcome);
  while (child.completed < count) {
    const uint32_t slot = child.complete().slot;
    endings_.member_ended(slot, child.completed == count ? outcome : Outcome::kSucceeded, cause);
  }
}

void Reports::check(const Child& child, uint64_t count, Outcome outcome) const {
  if (child.state != ChildState::kReady) {
    refuse_report(name_of(child) + " is " + kChildStateNames[static_cast<uint8_t>(child.state)] +
                  " and reports frame " + std::to_string(count));
  }
  if (count <= child.completed || count > child.sent) {
    refuse_report(name_of(child) + " reports frame " + std::to_string(count) + "; " +
                  std::to_string(child.completed) + " have completed and " +
                  std::to_string(child.sent) + " were sent");
  }
  // Only frames with a requirement can be poisoned, so no other frames need this check.
  if (child.early == 0 && outcome != Outcome::kSkipped) return;
  for (uint64_t each = child.completed + 1; each <= count; ++each) {
    check_skip(child, each, each == count && outcome == Outcome::kSkipped);
  }
}

// A child may skip a frame only if the requirement of the frame failed or was lost. A child sees
// completions of other children before the engine does, so a requirement that was not reported yet
// may have succeeded or failed.
void Reports::check_skip(const Child& child, uint64_t count, bool is_skip) const {
  const InFlight& frame = child.frame(count);
  const Slot& slot = core_.slots[frame.slot];
  const bool is_required = frame.required_child != kNone;
  const bool is_lost =
      is_required && core_.children[frame.required_child].has_lost(frame.required_count);
  const bool is_poisoned = slot.poison != kNotPoisoned;
  const bool may_skip = is_required && (is_lost || is_poisoned || slot.unfinished > 0);
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
  Child& child = core_.children.reported(number);
  if (child.state == ChildState::kReady) refuse_report(name_of(child) + " is ready already");
  child.state = ChildState::kReady;
}

void Reports::lost(int32_t number, int64_t cause, uint64_t started, bool returns) {
  Child& child = core_.children.reported(number);
  if (child.state == ChildState::kLost) refuse_report(name_of(child) + " is lost already");
  if (started < child.completed || started > child.sent) {
    refuse_report(name_of(child) + " is lost with " + std::to_string(started) + " frames begun; " +
                  std::to_string(child.completed) + " have completed and " +
                  std::to_string(child.sent) + " were sent");
  }
  child.state = returns ? ChildState::kExpected : ChildState::kLost;
  child.cause = cause;
  const uint64_t first = child.completed + 1;
  child.lose();
  for (uint64_t count = first; count <= child.sent; ++count) {
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

void Reports::deadline(int32_t number, uint64_t count, int64_t cause) {
  Child& child = core_.children.reported(number);
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

}  // namespace pto::hierarchy
