#include "engine/snapshot.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/core.hpp"

namespace pto::worker {
namespace {

// Return the unfinished producers of each waiting task.
std::map<int64_t, std::vector<int64_t>> unfinished_of(const EngineState& core) {
  std::map<int64_t, std::vector<int64_t>> found;
  core.slots.numbers().for_each([&](uint32_t index) {
    const Slot& slot = core.slots[index];
    for (uint32_t edge = slot.consumers; edge != kNoEdge; edge = core.edges[edge].next_consumer) {
      found[core.slots[core.edges[edge].consumer].number].push_back(slot.number);
    }
  });
  return found;
}

Snapshot::Task task_of(const EngineState& core, const Slot& slot) {
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

std::vector<int64_t> queued(const EngineState& core, uint16_t first, uint16_t last) {
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

Snapshot::EngineChild child_of(const EngineState& core, const EngineChild& child) {
  Snapshot::EngineChild found = {
      static_cast<uint8_t>(child.state), child.sent, child.completed, {}};
  for (uint64_t count = child.completed + 1; count <= child.sent; ++count) {
    const InFlight& frame = child.frame(count);
    const int64_t task = frame.slot == kNoSlot ? kNone : core.slots[frame.slot].number;
    found.in_flight.emplace_back(task, frame.member);
  }
  return found;
}

std::vector<int64_t> scope_of(const EngineState& core, const ScopeTasks& scope) {
  std::vector<int64_t> numbers;
  uint32_t index = scope.first;
  for (; index != kNoSlot; index = core.slots[index].scope_next) {
    numbers.push_back(core.slots[index].number);
  }
  return numbers;
}

}  // namespace

Snapshot snapshot_of(const EngineState& core) {
  Snapshot found = {};
  found.conservative_edges = core.conservative_edges;
  for (const EngineRun& run : core.runs) {
    found.runs.push_back({run.is_open,
                          run.is_ending,
                          run.cancelled,
                          run.tasks,
                          run.unfinished,
                          run.failed,
                          run.poisoned,
                          {}});
    for (const ScopeTasks& scope : run.scopes)
      found.runs.back().scopes.push_back(scope_of(core, scope));
  }
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
  for (const EngineChild& child : core.children.all())
    found.children.push_back(child_of(core, child));
  for (const Heap& ring : core.rings) {
    found.rings.push_back({ring.head(), ring.used(), ring.size()});
  }
  return found;
}

// Checks the invariants by computing all counts again.

namespace {

void require(bool holds, const std::string& text) {
  if (holds) return;
  throw Refusal(Refusal::Kind::kInternal, "an invariant does not hold: " + text);
}

std::string name_of(const Slot& slot) {
  return "task " + std::to_string(slot.number) + " (" +
         kStateNames[static_cast<uint8_t>(slot.state)] + ")";
}

// The references to each slot, computed from edges and scopes.
struct Expected {
  uint32_t consumer = 0;
  uint32_t owner = 0;
  uint32_t scope = 0;
  uint32_t unfinished = 0;
  uint32_t unfinished_sum = 0;
  uint32_t poisoning = 0;
  uint32_t frames = 0;
};
using Expectations = std::vector<Expected>;

Expectations expectations_of(const EngineState& core) {
  Expectations found(core.slots.end());
  core.slots.numbers().for_each([&](uint32_t index) {
    const Slot& slot = core.slots[index];
    for (uint32_t at = slot.consumers; at != kNoEdge; at = core.edges[at].next_consumer) {
      const Edge& edge = core.edges[at];
      require(edge.producer == index && edge.is_waited_for,
              name_of(slot) + " has an edge of another producer in its list of consumers");
      ++found[edge.consumer].unfinished;
      found[edge.consumer].unfinished_sum ^= index;
      found[edge.consumer].poisoning += poisons(edge.why);
    }
    for (uint32_t at = slot.holds; at != kNoEdge; at = core.edges[at].next_hold) {
      const Edge& edge = core.edges[at];
      require(edge.consumer == index,
              name_of(slot) + " has an edge of another consumer in its list of holds");
      ++((edge.why & kOwner) != 0 ? found[edge.producer].owner : found[edge.producer].consumer);
    }
  });
  for (const EngineRun& run : core.runs) {
    for (const ScopeTasks& scope : run.scopes) {
      uint32_t index = scope.first;
      for (; index != kNoSlot; index = core.slots[index].scope_next) ++found[index].scope;
    }
  }
  for (const EngineChild& child : core.children.all()) {
    for (uint64_t count = child.completed + 1; count <= child.sent; ++count) {
      const uint32_t slot = child.frame(count).slot;
      if (slot != kNoSlot) ++found[slot].frames;
    }
  }
  return found;
}

void validate_task(const Slot& slot, const Expected& expected) {
  const std::string name = name_of(slot);
  const TaskState state = slot.state;
  require(state != TaskState::kFree && state != TaskState::kConsumed, name + " is not alive");
  const bool has_finished = state == TaskState::kCompleted || state == TaskState::kFailed;
  require(slot.is_unfinished != has_finished,
          name + ": its reference to itself contradicts its state");
  require(slot.is_in_scope == (expected.scope == 1),
          name + ": the reference of its scope contradicts the scopes");
  require(slot.consumer_count == expected.consumer,
          name + " has a wrong number of references of consumers");
  require(slot.owner_count == expected.owner, name + " has a wrong number of references of owners");
  require(slot.unfinished == expected.unfinished,
          name + " has a wrong number of unfinished producers");
  require(slot.unfinished_sum == expected.unfinished_sum,
          name + " has a wrong XOR of its unfinished producers");
  require(slot.poisoning == expected.poisoning,
          name + " has a wrong number of producers that can poison it");
  require((state == TaskState::kPending) <= (slot.unfinished > 0 || slot.is_delayed),
          name + " is PENDING without an unfinished producer or a delay");
  require((state == TaskState::kReady) <= (slot.unfinished == 0),
          name + " is READY with an unfinished producer");
  require(state != TaskState::kReady || slot.poison == kNotPoisoned,
          name + " is READY and poisoned");
  const uint32_t frames = state == TaskState::kRunning ? slot.members - slot.ended : 0u;
  require(expected.frames == frames, name + " has a wrong number of frames in flight");
  if (has_finished) {
    require(slot.consumers == kNoEdge && slot.holds == kNoEdge,
            name + " has finished and still has edges");
  }
}

void validate_queue(const EngineState& core, const Slot& slot) {
  const std::string name = name_of(slot);
  if (slot.list == 0)
    return require(slot.state != TaskState::kReady, name + " is READY and in no queue");
  if (!core.queues.is_early(slot.list)) {
    return require(slot.state == TaskState::kReady, name + " is in a queue and not READY");
  }
  require(slot.state == TaskState::kPending && slot.unfinished == 1,
          name + " is in an early list, but is not PENDING with one producer");
  const Slot& producer = core.slots[slot.unfinished_sum];
  require(producer.state == TaskState::kRunning,
          name + " is in an early list, but its producer is not RUNNING");
}

void validate_memory(const EngineState& core) {
  for (const Heap& ring : core.rings) {
    const std::string name = "ring " + std::to_string(ring.number());
    require(ring.used() <= ring.size(), name + " uses more bytes than its size");
    uint64_t end = 0;
    uint64_t held = 0;
    ring.for_each([&](const Slab& slab) {
      require(slab.begin >= end, "slabs of " + name + " overlap");
      end = slab.end;
      held += slab.end - slab.begin;
      const Slot& slot = core.slots[slab.slot];
      const bool is_live =
          slot.number != kNone && slot.slab_ring == ring.number() && &ring.slab(slot.slab) == &slab;
      require(slab.is_released || is_live,
              "a slab of " + name + " is not released and belongs to no live task");
    });
    require(held == ring.held(), name + " has a wrong number of bytes in slabs");
  }
}

}  // namespace

void validate(const EngineState& core) {
  const Expectations expected = expectations_of(core);
  uint64_t live = 0;
  std::vector<uint64_t> unfinished(core.runs.size());
  core.slots.numbers().for_each([&](uint32_t index) {
    ++live;
    if (core.slots[index].is_unfinished) ++unfinished.at(core.slots[index].run);
    validate_task(core.slots[index], expected[index]);
    validate_queue(core, core.slots[index]);
  });
  require(live == core.slots.live(), "the number of live tasks is wrong");
  for (size_t run = 0; run < core.runs.size(); ++run)
    require(unfinished[run] == core.runs[run].unfinished,
            "run " + std::to_string(run) + " has a wrong number of unfinished tasks");
  for (const EngineChild& child : core.children.all()) {
    const std::string name = "child " + std::to_string(child.number);
    require(child.in_flight() <= child.window, name + " exceeds its window");
  }
  validate_memory(core);
}

}  // namespace pto::worker
