// The data that the parts of the engine share: the tables, and the instructions of the
// current event.
//
// Each part has a .cpp file and a header. Its specification is the part with the same name of the
// reference engine, in pto_devkit.engine.reference.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/children.hpp"
#include "engine/heap.hpp"
#include "engine/interface.hpp"
#include "engine/queues.hpp"
#include "engine/regions.hpp"
#include "engine/slots.hpp"
#include "pto/engine/scope_stack.hpp"

namespace pto::hierarchy {

class Tracer;

// The record of one member of a group.
struct GroupMember {
  int32_t pin;    // kNone: the policy chooses
  int32_t child;  // kNone: not sent in this attempt
  uint64_t count;
};

// The records of the members of groups. The records of one group are consecutive, and are reused
// for a later group of the same size.
class GroupMembers {
 public:
  explicit GroupMembers(uint32_t largest) : free_(largest + 1) {}

  int32_t take(uint32_t members) {
    std::vector<int32_t>& free = free_[members];
    if (free.empty()) {
      all_.resize(all_.size() + members);
      return static_cast<int32_t>(all_.size() - members);
    }
    const int32_t first = free.back();
    free.pop_back();
    return first;
  }

  void give_back(int32_t first, uint32_t members) { free_[members].push_back(first); }
  GroupMember* at(int32_t first) { return &all_[static_cast<uint32_t>(first)]; }
  const GroupMember* at(int32_t first) const { return &all_[static_cast<uint32_t>(first)]; }

 private:
  std::vector<GroupMember> all_;
  std::vector<std::vector<int32_t>> free_;  // free records by group size
};

// Return an instruction for this task, with all other fields unset.
inline Instruction instruction(Instruction::What what, int64_t task) {
  Instruction made;
  made.what = what;
  made.result = Result::kCompleted;
  made.ring = 0;
  made.child = made.member = made.required_child = static_cast<int32_t>(kNone);
  made.task = task;
  made.cause = made.root = kNone;
  return made;
}

// The tasks of an open scope, linked by Slot::scope_next.
struct ScopeTasks {
  uint32_t first = kNoSlot;
  uint32_t last = kNoSlot;
};

struct HeapSpan {
  uint64_t begin = ~uint64_t{0};
  uint64_t end = 0;
};

// The state of an engine. Only the state of the children and the rings is kept after the end of a
// run.
struct Core {
  explicit Core(const Configuration& given);
  ~Core();

  // Clear the data of the previous run.
  void restart(Hazards run_hazards);
  void begin_scope();
  uint32_t depth() const { return static_cast<uint32_t>(scope_tasks.size()) - 1; }
  Heap& ring() { return rings[scopes.innermost().ring]; }
  // Record the use of a heap ring. Call it only if there is a tracer.
  void trace_ring(uint32_t ring) const;

  GroupMember* group(const Slot& slot) { return members.at(slot.pin); }
  const GroupMember* group(const Slot& slot) const { return members.at(slot.pin); }

  const Configuration configuration;
  Slots slots;
  Pool<Edge, &Edge::next_consumer> edges;
  Children children;
  GroupMembers members;
  Queues queues;
  RegionMap regions;
  std::vector<Heap> rings;
  HeapSpan heap;  // contains all rings
  engine::ScopeStack<kRings> scopes;
  std::vector<ScopeTasks> scope_tasks;  // indexed by scope depth
  Instructions* out = nullptr;          // instructions of the current event
  Tracer* tracer = nullptr;             // null: dependencies are not traced
  uint32_t freed_rings = 0;  // rings whose tail has moved in this event, one bit for each ring
  bool is_running = false;   // whether a run is open: from its start to the end of its last task
  bool is_ending = false;
  Hazards hazards = Hazards::kRaw;
  std::optional<int64_t> cancelled;  // the cause, once the run is cancelled
  uint64_t tasks = 0;                // number of tasks submitted in this run
  uint64_t key_count = 0;  // number of keys that were assigned to OUTPUT tensors of size 0
  uint64_t conservative_edges = 0;
  std::unordered_map<int64_t, int64_t> roots;  // (task, root) of each failed or poisoned task of
                                               // this run
  std::vector<std::pair<int64_t, int64_t>> failed;
  std::vector<std::pair<int64_t, int64_t>> poisoned;

 private:
  pto_platform scope_platform_;
  engine::Memory scope_memory_;
};

}  // namespace pto::hierarchy
