#include "engine/dispatch.hpp"

#include <algorithm>

namespace pto::worker {
namespace {

// Return the cause of the last loss among children of which at least one is LOST. Causes have
// ascending numbers.
int64_t last_loss(const std::vector<EngineChild*>& children) {
  int64_t cause = kNone;
  for (const EngineChild* child : children)
    if (child->state == EngineChildState::kLost) cause = std::max(cause, child->cause);
  return cause;
}

}  // namespace

Dispatcher::Dispatcher(EngineState& core, Endings& endings, Policy policy)
    : core_(core), endings_(endings), policy_(std::move(policy)) {
  allowed_.reserve(core.children.size());
  chosen_.reserve(core.children.size());
  others_.reserve(core.children.size());
  candidates_.reserve(core.children.size());
}

void Dispatcher::dispatch() {
  while (pass()) {
  }
}

bool Dispatcher::pass() {
  ++pass_;
  is_closed_[0] = is_closed_[1] = false;
  bool has_sent = false;
  if (core_.queues.groups_in_a_row >= kGroupsInARow) has_sent = try_oldest_single();
  if (core_.queues.groups() > 0) has_sent = try_groups() || has_sent;
  while (core_.queues.singles() > 0 && try_oldest_single()) has_sent = true;
  while (core_.queues.early() > 0 && try_oldest_early()) has_sent = true;
  // Another pass is useful only if groups wait, because only groups reserve children. Otherwise the
  // loops above have sent all tasks that can be sent.
  return has_sent && core_.queues.groups() > 0;
}

// Try to send each waiting group once. The order is the order of arrival over both kinds of tasks.
bool Dispatcher::try_groups() {
  const uint64_t end = core_.queues.next_arrival();
  uint32_t next[2];
  for (uint8_t kind = 0; kind < 2; ++kind) {
    next[kind] = core_.queues.list(Queues::group_list(kind)).head;
  }
  bool has_sent = false;
  while (true) {
    uint32_t index = kNoSlot;
    for (uint8_t kind = 0; kind < 2; ++kind) {
      const uint32_t candidate = is_closed_[kind] ? kNoSlot : next[kind];
      if (candidate == kNoSlot || core_.slots[candidate].arrival >= end) continue;
      if (index == kNoSlot || core_.slots[candidate].arrival < core_.slots[index].arrival) {
        index = candidate;
      }
    }
    if (index == kNoSlot) return has_sent;
    const Slot& slot = core_.slots[index];
    next[slot.kind] = slot.next;
    has_sent = try_group(index) || has_sent;
  }
}

bool Dispatcher::try_group(uint32_t index) {
  Slot& slot = core_.slots[index];
  allow(slot);
  const auto is_left = [](const EngineChild& child) {
    return child.state != EngineChildState::kLost;
  };
  if (count(is_left) < slot.members) {
    endings_.fail(index, last_loss(allowed_));
    return true;
  }
  const auto is_free = [this](const EngineChild& child) { return takes(child); };
  if (count(is_free) < slot.members) {
    reserve_for(slot);
    return false;
  }
  choose(slot, is_free);
  start(index, TaskEvent::kDispatch);
  for (uint32_t member = 0; member < slot.members; ++member) {
    EngineChild& child = *chosen_[member];
    const uint64_t frame = send(index, member, child, static_cast<int32_t>(kNone), 0);
    core_.group(slot)[member].child = child.number;
    core_.group(slot)[member].count = frame;
  }
  consider_consumers(slot);
  Queues& queues = core_.queues;
  queues.groups_in_a_row = queues.singles() > 0 ? queues.groups_in_a_row + 1 : 0;
  return true;
}

void Dispatcher::reserve_for(const Slot& slot) {
  const auto is_ready = [](const EngineChild& child) {
    return child.state == EngineChildState::kReady;
  };
  const auto is_unreserved = [&](const EngineChild& child) {
    return is_ready(child) && !is_reserved(child);
  };
  const uint32_t unreserved = count(is_unreserved);
  const uint32_t ready = count(is_ready);
  if (unreserved >= slot.members) {
    choose(slot, is_unreserved);
    for (EngineChild* child : chosen_) child->reserved = pass_;
  } else if (unreserved > 0 && slot.is_pinned && ready == slot.members) {
    for (EngineChild* child : allowed_) child->reserved = pass_;
  } else if (ready >= slot.members) {
    is_closed_[slot.kind] = true;
  }
}

void Dispatcher::allow(const Slot& slot) {
  if (!slot.is_pinned) {
    allowed_ = core_.children.of_kind(slot.kind);
    return;
  }
  allowed_.clear();
  for (uint32_t member = 0; member < slot.members; ++member) {
    allowed_.push_back(&core_.children[core_.group(slot)[member].pin]);
  }
}

template <class Fits>
uint32_t Dispatcher::count(Fits&& fits) const {
  uint32_t found = 0;
  for (const EngineChild* child : allowed_) found += fits(*child);
  return found;
}

// Choose the pinned children. Without pins, choose the hinted children first, then the children
// with the fewest frames.
template <class Fits>
void Dispatcher::choose(const Slot& slot, Fits&& fits) {
  if (slot.is_pinned) {
    chosen_ = allowed_;
    return;
  }
  const GroupMember* members = core_.group(slot);
  const auto is_wished = [&](const EngineChild& child) {
    return std::any_of(members, members + slot.members,
                       [&](const GroupMember& member) { return member.pin == child.number; });
  };
  others_.clear();
  for (EngineChild* child : allowed_) {
    if (fits(*child) && !is_wished(*child)) others_.push_back(child);
  }
  std::sort(others_.begin(), others_.end(), [](const EngineChild* one, const EngineChild* other) {
    if (one->load() != other->load()) return one->load() < other->load();
    return one->number < other->number;
  });
  chosen_.clear();
  size_t rest = 0;
  for (uint32_t member = 0; member < slot.members; ++member) {
    const int32_t pin = members[member].pin;
    const bool has_wish = pin != kNone && fits(core_.children[pin]);
    chosen_.push_back(has_wish ? &core_.children[pin] : others_[rest++]);
  }
}

bool Dispatcher::try_oldest_single() {
  uint32_t oldest = kNoSlot;
  const auto consider = [&](uint32_t index) {
    if (index == kNoSlot) return;
    if (oldest != kNoSlot && core_.slots[oldest].arrival < core_.slots[index].arrival) return;
    oldest = index;
  };
  for (uint8_t kind = 0; kind < 2; ++kind) {
    const uint32_t index = core_.queues.list(Queues::single_list(kind)).head;
    if (index != kNoSlot && may_change(kind)) consider(index);
  }
  if (core_.queues.pinned() > 0) {
    for (const EngineChild& child : core_.children.all()) {
      if (!is_of_use(child)) continue;
      consider(core_.queues.list(core_.queues.pinned_list(child.number)).head);
    }
  }
  return oldest != kNoSlot && try_single(oldest);
}

// Return whether an unpinned single task of this kind can be sent now, or must fail because no
// child is left.
bool Dispatcher::may_change(uint8_t kind) const {
  bool is_lost = true;
  for (const EngineChild* child : core_.children.of_kind(kind)) {
    if (takes(*child)) return true;
    is_lost = is_lost && child->state == EngineChildState::kLost;
  }
  return is_lost;
}

bool Dispatcher::try_single(uint32_t index) {
  Slot& slot = core_.slots[index];
  EngineChild* child = pick(slot);
  if (child == nullptr) {
    endings_.fail(index, slot.is_pinned ? core_.children[slot.pin].cause
                                        : last_loss(core_.children.of_kind(slot.kind)));
    return true;
  }
  start(index, TaskEvent::kDispatch);
  slot.count = send(index, 0, *child, static_cast<int32_t>(kNone), 0);
  slot.child = child->number;
  consider_consumers(slot);
  core_.queues.groups_in_a_row = 0;
  return true;
}

EngineChild* Dispatcher::pick(const Slot& slot) {
  if (slot.pin != kNone) {
    EngineChild& child = core_.children[slot.pin];
    if (takes(child)) return &child;
    if (slot.is_pinned) return nullptr;
  }
  return policy_ ? pick_by_policy(slot) : pick_least_loaded(slot);
}

EngineChild* Dispatcher::pick_least_loaded(const Slot& slot) {
  EngineChild* best = nullptr;
  for (EngineChild* child : core_.children.of_kind(slot.kind)) {
    if (!takes(*child)) continue;
    const bool is_better = best == nullptr || child->load() < best->load() ||
                           (child->load() == best->load() && child->number == slot.last_producer);
    if (is_better) best = child;
  }
  return best;
}

EngineChild* Dispatcher::pick_by_policy(const Slot& slot) {
  candidates_.clear();
  for (EngineChild* child : core_.children.of_kind(slot.kind)) {
    if (takes(*child)) candidates_.push_back({child->number, child->load()});
  }
  if (candidates_.empty()) return nullptr;
  const int32_t picked = policy_(candidates_, slot.last_producer, slot.number);
  for (const Candidate& candidate : candidates_) {
    if (candidate.child == picked) return &core_.children[picked];
  }
  throw Refusal(Refusal::Kind::kUsage, "the policy picked child " + std::to_string(picked) +
                                           ", which has no free space; pick one of the candidates");
}

bool Dispatcher::try_oldest_early() {
  uint32_t oldest = kNoSlot;
  EngineChild* target = nullptr;
  for (EngineChild& child : core_.children.all()) {
    if (!takes(child)) continue;
    const uint32_t index = core_.queues.list(core_.queues.early_list(child.number)).head;
    if (index == kNoSlot) continue;
    if (oldest != kNoSlot && core_.slots[oldest].arrival < core_.slots[index].arrival) continue;
    oldest = index;
    target = &child;
  }
  if (oldest == kNoSlot) return false;
  send_early(oldest, *target);
  return true;
}

void Dispatcher::send_early(uint32_t index, EngineChild& child) {
  Slot& slot = core_.slots[index];
  const Slot& producer = core_.slots[slot.unfinished_sum];
  slot.last_producer = producer.child;
  start(index, TaskEvent::kDispatchEarly);
  slot.count = send(index, 0, child, producer.child, producer.count);
  slot.child = child.number;
  consider_consumers(slot);
}

void Dispatcher::start(uint32_t index, TaskEvent event) {
  Slot& slot = core_.slots[index];
  core_.slots.move(slot, event);
  core_.queues.remove(slot);
  if (slot.keeps_regions) keep_regions(slot);
  slot.follower = kNoSlot;
}

uint64_t Dispatcher::send(uint32_t index, uint32_t member, EngineChild& child,
                          int32_t required_child, uint64_t required_count) {
  const uint64_t frame = child.send({index, member, required_child, required_count});
  Instruction send = instruction(Instruction::What::kSend, core_.slots[index].number);
  send.child = child.number;
  send.count = frame;
  send.member = static_cast<int32_t>(member);
  send.required_child = required_child;
  send.required_count = required_count;
  core_.out->push_back(send);
  return frame;
}

void Dispatcher::consider_consumers(const Slot& slot) {
  for (uint32_t edge = slot.consumers; edge != kNoEdge; edge = core_.edges[edge].next_consumer) {
    endings_.consider_early(core_.edges[edge].consumer);
  }
}

void Dispatcher::keep_regions(Slot& slot) {
  const auto what =
      slot.has_saved ? Instruction::What::kRestoreRegions : Instruction::What::kSaveRegions;
  core_.out->push_back(instruction(what, slot.number));
  slot.has_saved = true;
}

}  // namespace pto::worker
