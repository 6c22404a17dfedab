#include "engine/snapshot.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/core.hpp"

namespace pto::hierarchy {
namespace {

// Return the unfinished producers of each waiting task.
std::map<int64_t, std::vector<int64_t>> unfinished_of(const Core& core) {
  std::map<int64_t, std::vector<int64_t>> found;
  core.slots.numbers().for_each([&](uint32_t index) {
    const Slot& slot = core.slots[index];
    for (uint32_t edge = slot.consumers; edge != kNoEdge; edge = core.edges[edge].next_consumer) {
      found[core.slots[core.edges[edge].consumer].number].push_back(slot.number);
    }
  });
  return found;
}

Snapshot::Task task_of(const Core& core, const Slot& slot) {
  Snapshot::Task task = {};
  task.number = slot.number;
  task.state = slot.state;
  task.self = slot.is_unfinished;
  task.scope = slot.is_in_scope;
  task.consumer = slot.consumer_count;
  task.owner = slot.owner_count;
  task.attempts = slot.attempts;
  task.ended = slot.ended;
  if (slot.poison != kNotPoisoned) task.poison = slot.poison;
  if (slot.members == 1 && slot.child != kNone) task.children = {{slot.child, slot.count}};
  for (uint32_t member = 0; slot.members > 1 && member < slot.members; ++member) {
    const GroupMember& each = core.group(slot)[member];
    if (each.child != kNone) task.children.emplace_back(each.child, each.count);
  }
  return task;
}

std::vector<int64_t> queued(const Core& core, uint16_t first, uint16_t last) {
  std::vector<std::pair<uint64_t, int64_t>> found;
  for (uint16_t list = first; list <= last; ++list) {
    uint32_t index = core.queues.list(list).head;
    for (; index != kNoSlot; index = core.slots[index].next) {
      found.emplace_back(core.slots[index].arrival, core.slots[index].number);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<int64_t> numbers;
  for (const auto& each : found) numbers.push_back(each.second);
  return numbers;
}

Snapshot::Child child_of(const Core& core, const Child& child) {
  Snapshot::Child found = {static_cast<uint8_t>(child.state), child.sent, child.completed, {}};
  for (uint64_t count = child.completed + 1; count <= child.sent; ++count) {
    const InFlight& frame = child.frame(count);
    found.in_flight.emplace_back(core.slots[frame.slot].number, frame.member);
  }
  return found;
}

std::vector<int64_t> scope_of(const Core& core, const ScopeTasks& scope) {
  std::vector<int64_t> numbers;
  uint32_t index = scope.first;
  for (; index != kNoSlot; index = core.slots[index].scope_next) {
    numbers.push_back(core.slots[index].number);
  }
  return numbers;
}

}  // namespace

Snapshot snapshot_of(const Core& core) {
  Snapshot found = {};
  found.is_running = core.is_running;
  found.is_ending = core.is_ending;
  found.cancelled = core.cancelled;
  found.tasks_submitted = core.tasks;
  found.conservative_edges = core.conservative_edges;
  found.failed = core.failed;
  found.poisoned = core.poisoned;
  std::map<int64_t, std::vector<int64_t>> unfinished = unfinished_of(core);
  core.slots.numbers().for_each([&](uint32_t index) {
    found.tasks.push_back(task_of(core, core.slots[index]));
    found.tasks.back().unfinished = unfinished[found.tasks.back().number];
  });
  const auto children = static_cast<int32_t>(core.children.size());
  found.singles = queued(core, Queues::single_list(0), Queues::single_list(1));
  const std::vector<int64_t> pinned =
      queued(core, core.queues.pinned_list(0), core.queues.pinned_list(children - 1));
  if (!pinned.empty()) {
    // Return both queues in the order in which their tasks became ready.
    std::vector<std::pair<uint64_t, int64_t>> all;
    for (const std::vector<int64_t>* list : {&std::as_const(found.singles), &pinned}) {
      for (const int64_t number : *list) {
        all.emplace_back(core.slots[core.slots.numbers().slot(number)].arrival, number);
      }
    }
    std::sort(all.begin(), all.end());
    found.singles.clear();
    for (const auto& each : all) found.singles.push_back(each.second);
  }
  found.groups = queued(core, Queues::group_list(0), Queues::group_list(1));
  found.early = queued(core, core.queues.early_list(0), core.queues.early_list(children - 1));
  for (const Child& child : core.children.all()) found.children.push_back(child_of(core, child));
  for (const Heap& ring : core.rings) {
    found.rings.push_back({ring.head(), ring.used(), ring.size()});
  }
  for (const ScopeTasks& scope : core.scope_tasks) found.scopes.push_back(scope_of(core, scope));
  return found;
}

}  // namespace pto::hierarchy
