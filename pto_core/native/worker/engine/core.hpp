// The data that the parts of the engine share: the tables, and the instructions of the
// current event.
//
//     event             part                 reads and changes
//     submit            SubmissionPart       Slots, RegionMap, Heap: producers, memory, edges
//        | READY            |
//        v                  v
//     dispatch          Dispatcher           Queues, Children: which task goes to which child
//        | RUNNING          |                                  --> kSend
//        v                  v
//     child_completed   Endings, Reports     Slots, edges, Heap: consumers become READY, slots
//     child_lost                             and slabs are freed --> kTaskFinished, kRoomFreed
//
// A part has a .cpp file and a header. Its specification is the part with the same name of the
// reference engine, in pto_devkit.engine.reference. docs/states.md has the states of a task, and
// docs/adr/0010-the-hierarchy-engine.md the reasons for the events.
//
// Invariants over all tables, between two events:
// - A slot is in use while its task has a SELF, SCOPE, CONSUMER or OWNER reference, and no longer.
// - A task that is READY is in exactly one list of Queues; a PENDING one is at most in an early
// list.
// - The frames in flight of a child have the numbers `completed` + 1 to `sent`.
// - A slab of a heap ring is free when its task and the tasks of all older slabs are CONSUMED.
// - An event that is refused has changed nothing: each part checks before its first change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/interface.hpp"
#include "engine/regions.hpp"
#include "engine/slots.hpp"
#include "pto/engine/heap_ring.hpp"

namespace pto::worker {

// The children: their frames in flight, and whether they accept frames.
enum class EngineChildState : uint8_t { kExpected, kReady, kLost };
constexpr const char* kChildStateNames[] = {"EXPECTED", "READY", "LOST"};

// A frame that was sent and has not completed yet.
struct InFlight {
  uint32_t slot;  // kNoSlot: it was withdrawn, and the child will report it as skipped
  uint32_t member;
  int32_t required_child;  // kNone: nothing is required
  uint64_t required_count;
};

// A child, as the engine sees it. Invariant: the frames in flight have the numbers `completed` + 1
// to `sent`.
class EngineChild {
 public:
  EngineChild(int32_t number, const ChildConfiguration& configuration)
      : number(number), kind(configuration.kind), window(configuration.window) {
    uint64_t frames = 1;
    while (frames < window) frames *= 2;
    frames_.resize(frames);
  }

  const int32_t number;
  const Kind kind;
  const uint32_t window;
  EngineChildState state = EngineChildState::kExpected;
  uint64_t reserved = 0;  // number of the dispatch pass in which the child was reserved for a group
  uint32_t early = 0;     // number of frames in flight that have a requirement
  uint32_t withdrawn = 0;  // number of frames in flight without a slot
  uint64_t sent = 0;
  uint64_t completed = 0;  // never decreases; frames lost with the child count as completed
  int64_t cause = kNone;   // cause of the child's last loss

  uint64_t in_flight() const { return sent - completed; }
  uint64_t load() const { return in_flight() - withdrawn; }
  bool has_space() const { return state == EngineChildState::kReady && in_flight() < window; }
  InFlight& frame(uint64_t count) { return frames_[count & (frames_.size() - 1)]; }
  const InFlight& frame(uint64_t count) const { return frames_[count & (frames_.size() - 1)]; }

  // Add a frame in flight. Fewer frames than `window` must be in flight.
  uint64_t send(const InFlight& in_flight) {
    early += in_flight.required_child != kNone;
    frame(++sent) = in_flight;
    return sent;
  }

  // Remove the oldest frame in flight.
  const InFlight& complete() {
    const InFlight& oldest = frame(++completed);
    early -= oldest.required_child != kNone;
    withdrawn -= oldest.slot == kNoSlot;
    if (!deadlines_.empty()) forget_deadlines();
    return oldest;
  }

  // Take the slot of a frame in flight, which will not begin.
  uint32_t withdraw(uint64_t count) {
    InFlight& taken = frame(count);
    early -= taken.required_child != kNone;
    taken.required_child = static_cast<int32_t>(kNone);
    ++withdrawn;
    return std::exchange(taken.slot, kNoSlot);
  }

  // Mark all frames in flight as lost. Their data stays readable until the next frame is sent.
  void lose() {
    if (sent > completed) lost_.push_back({completed + 1, sent});
    completed = sent;
    early = withdrawn = 0;
  }

  // Return whether the frame was lost with the child.
  bool has_lost(uint64_t count) const {
    for (const Range& range : lost_) {
      if (range.first <= count && count <= range.last) return true;
    }
    return false;
  }

  // Return the cause of the timeout if the frame exceeded its time limit, otherwise return
  // `otherwise`.
  int64_t deadline(uint64_t count, int64_t otherwise) const {
    for (const Deadline& each : deadlines_) {
      if (each.count == count) return each.cause;
    }
    return otherwise;
  }

  // Return false if the frame has already exceeded its time limit.
  bool add_deadline(uint64_t count, int64_t cause) {
    for (const Deadline& each : deadlines_) {
      if (each.count == count) return false;
    }
    deadlines_.push_back({count, cause});
    return true;
  }

  void forget_deadlines() {
    std::erase_if(deadlines_, [&](const Deadline& each) { return each.count <= completed; });
  }

 private:
  struct Range {
    uint64_t first;
    uint64_t last;
  };
  struct Deadline {
    uint64_t count;
    int64_t cause;
  };

  std::vector<InFlight> frames_;  // the number of elements is a power of 2
  std::vector<Range> lost_;       // the frames that were in flight at each loss
  std::vector<Deadline> deadlines_;
};

// All children, by number and by kind.
class Children {
 public:
  explicit Children(const std::vector<ChildConfiguration>& configurations) {
    for (const ChildConfiguration& each : configurations) {
      all_.emplace_back(static_cast<int32_t>(all_.size()), each);
    }
    for (EngineChild& child : all_) of_kind_[static_cast<uint8_t>(child.kind)].push_back(&child);
  }

  uint32_t size() const { return static_cast<uint32_t>(all_.size()); }
  // Return a child by a number that comes from the engine, so it is valid.
  EngineChild& operator[](int64_t number) { return all_[static_cast<uint64_t>(number)]; }
  const EngineChild& operator[](int64_t number) const {
    return all_[static_cast<uint64_t>(number)];
  }
  std::vector<EngineChild>& all() { return all_; }
  const std::vector<EngineChild>& all() const { return all_; }
  // Return the children that run tasks of this kind, in ascending order.
  const std::vector<EngineChild*>& of_kind(uint8_t kind) const { return of_kind_[kind]; }

  // Return a child by a number that comes from a report, so it is checked.
  EngineChild& reported(int32_t number) {
    if (number < 0 || static_cast<uint64_t>(number) >= all_.size()) {
      throw Refusal(Refusal::Kind::kProtocol, "child " + std::to_string(number) +
                                                  " does not exist; there are " +
                                                  std::to_string(all_.size()) + " children");
    }
    return all_[static_cast<uint64_t>(number)];
  }

 private:
  std::vector<EngineChild> all_;
  std::vector<EngineChild*> of_kind_[2];
};

struct Slab {
  uint64_t begin;  // virtual offset
  uint64_t end;    // virtual offset
  uint32_t slot;   // slot of its task
  bool is_released;
};

// The heap rings. Each submit that allocates memory gets one slab; slabs are freed in order.
//
// pto/engine/heap_ring.hpp computes the position of a slab. Invariant: `slabs_` contains the slabs
// that are not free at the indices from `oldest_` to before `next_`, ascending by position.
class Heap {
 public:
  Heap(uint32_t number, const RingConfiguration& configuration)
      : number_(number), configuration_(configuration), ring_(configuration.size), slabs_(64) {}

  // Start again with an empty ring. Every slab must be free.
  void restart() {
    ring_.restart(size());
    tail_ = 0;
  }

  uint64_t size() const { return configuration_.size; }
  uint64_t used() const { return ring_.used(tail_); }
  uint64_t head() const { return ring_.head(); }
  uint64_t held() const { return held_; }
  uint32_t number() const { return number_; }
  uint32_t slabs() const { return next_ - oldest_; }

  // Throw if `bytes` bytes do not fit into the empty ring.
  void check_size(uint64_t bytes) const {
    if (ring_.can_ever_fit(bytes)) return;
    throw Refusal(Refusal::Kind::kCapacity,
                  "a submit needs " + std::to_string(bytes) + " bytes of heap ring " +
                      std::to_string(number_) + ", which has " + std::to_string(size()) +
                      "; set heap_ring_size to at least " + std::to_string(bytes));
  }

  // Return the address of the slab that commit() would create, or none if there is no free space
  // now.
  std::optional<uint64_t> try_reserve(uint64_t bytes) {
    if (next_ - oldest_ == slabs_.size()) grow();
    const engine::HeapRing::Range range = ring_.try_reserve(bytes, tail_);
    if (!range.fits) return std::nullopt;
    at(next_) = {range.begin, range.end, kNoSlot, false};
    return configuration_.address + range.position;
  }

  // Create the slab for the task.
  uint32_t commit(uint32_t slot) {
    Slab& slab = at(next_);
    slab.slot = slot;
    held_ += slab.end - slab.begin;
    return next_++;
  }

  const Slab& slab(uint32_t index) const { return slabs_[index & (slabs_.size() - 1)]; }
  // Return the oldest slab, which must exist.
  const Slab& oldest() const { return slab(oldest_); }

  // Free the slab as soon as all older slabs are free. Return whether the tail moved.
  bool release(uint32_t index) {
    at(index).is_released = true;
    const uint32_t before = oldest_;
    while (oldest_ != next_ && at(oldest_).is_released) {
      held_ -= at(oldest_).end - at(oldest_).begin;
      tail_ = at(oldest_).end;
      ++oldest_;
    }
    return oldest_ != before;
  }

  // Return whether any of these bytes belong to the ring.
  bool contains(uint64_t begin, uint64_t end) const {
    return begin - configuration_.address < size() ||
           (begin < configuration_.address && configuration_.address < end);
  }

  // Return the slot of the live task whose slab contains all of these bytes, or kNoSlot.
  uint32_t owner(uint64_t begin, uint64_t end) const {
    if (begin < configuration_.address || oldest_ == next_) return kNoSlot;
    const uint64_t first = oldest().begin;
    uint64_t place = first - first % size() + (begin - configuration_.address);
    if (place < first) place += size();
    uint32_t low = 0;
    uint32_t high = next_ - oldest_;  // the slab that is searched has a lower index
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (slab(oldest_ + middle).begin <= place ? low : high) = middle;
    }
    const Slab& found = slab(oldest_ + low);
    const bool holds = found.begin <= place && place + (end - begin) <= found.end;
    return holds && !found.is_released ? found.slot : kNoSlot;
  }

  // Call visit(slab) for each slab, oldest first.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (uint32_t index = oldest_; index != next_; ++index) visit(slab(index));
  }

 private:
  Slab& at(uint32_t index) { return slabs_[index & (slabs_.size() - 1)]; }

  void grow() {
    std::vector<Slab> larger(slabs_.size() * 2);
    for (uint32_t index = oldest_; index != next_; ++index) {
      larger[index & (larger.size() - 1)] = at(index);
    }
    slabs_.swap(larger);
  }

  uint32_t number_;
  RingConfiguration configuration_;
  engine::HeapRing ring_;
  std::vector<Slab> slabs_;  // the number of elements is a power of 2
  uint32_t oldest_ = 0;
  uint32_t next_ = 0;
  uint64_t tail_ = 0;
  uint64_t held_ = 0;
};

// The queues of tasks that wait to be sent. A queue keeps the order in which tasks entered it.
//
// A queue has a list for each destination, so that the dispatcher reads only tasks that can be
// sent. `Slot::arrival` is the position of a task in the order over all lists. Invariants: a task
// is in a list of singles or groups if and only if it is READY. A task in an early list is PENDING
// and waits for exactly one producer, which is RUNNING; it may be sent before this producer ends.
class Queues {
 public:
  struct List {
    uint32_t head = kNoSlot;
    uint32_t tail = kNoSlot;
  };

  Queues(Slots& slots, uint32_t children)
      : slots_(slots), children_(children), lists_(kFirstPinned + 2 * children) {}

  // Return the list of the single tasks of a kind that may run on any child of that kind.
  static constexpr uint16_t single_list(uint8_t kind) { return kFirstSingle + kind; }
  static constexpr uint16_t group_list(uint8_t kind) { return kFirstGroup + kind; }
  uint16_t pinned_list(int32_t child) const { return offset(kFirstPinned, child); }
  // Return the list of the tasks that may be sent early to this child.
  uint16_t early_list(int32_t child) const { return offset(kFirstPinned + children_, child); }

  const List& list(uint16_t list) const { return lists_[list]; }
  uint64_t next_arrival() const { return arrivals_; }
  uint64_t singles() const { return singles_; }
  uint64_t pinned() const { return pinned_; }
  uint64_t groups() const { return groups_; }
  uint64_t early() const { return early_; }
  bool is_early(uint16_t list) const { return list >= kFirstPinned + children_; }

  // Add a task that has just become READY.
  void add_ready(uint32_t index) {
    const Slot& slot = slots_[index];
    if (slot.members > 1) {
      append(index, group_list(slot.kind));
    } else if (slot.is_pinned) {
      append(index, pinned_list(slot.pin));
    } else {
      append(index, single_list(slot.kind));
    }
  }

  void add_early(uint32_t index, int32_t child) { append(index, early_list(child)); }

  // Remove a task from the list of tasks that may be sent early, if it is in one.
  void remove_early(Slot& slot) {
    if (is_early(slot.list)) remove(slot);
  }

  // Remove a task, if it is in a queue, because its state or the state of its producer changes.
  void remove(Slot& slot) {
    if (slot.list == 0) return;
    List& list = lists_[slot.list];
    (slot.previous == kNoSlot ? list.head : slots_[slot.previous].next) = slot.next;
    (slot.next == kNoSlot ? list.tail : slots_[slot.next].previous) = slot.previous;
    count(slot.list, -1);
    slot.list = 0;
  }

  // Begin or end the delay of a task, whose next attempt must not become READY meanwhile.
  void set_delayed(Slot& slot, bool is_delayed) {
    if (slot.is_delayed == is_delayed) return;
    slot.is_delayed = is_delayed;
    is_delayed ? ++delayed_ : --delayed_;
  }
  uint64_t delayed() const { return delayed_; }

  // number of groups sent since the last single task was sent, counted while a single task waits
  uint32_t groups_in_a_row = 0;

 private:
  static constexpr uint16_t kFirstSingle = 1;
  static constexpr uint16_t kFirstGroup = 3;
  static constexpr uint16_t kFirstPinned = 5;

  static uint16_t offset(uint32_t first, int32_t child) {
    return static_cast<uint16_t>(first + static_cast<uint32_t>(child));
  }

  void append(uint32_t index, uint16_t number) {
    List& list = lists_[number];
    Slot& slot = slots_[index];
    slot.list = number;
    slot.arrival = arrivals_++;
    slot.next = kNoSlot;
    slot.previous = list.tail;
    (list.tail == kNoSlot ? list.head : slots_[list.tail].next) = index;
    list.tail = index;
    count(number, 1);
  }

  void count(uint16_t list, int32_t change) {
    if (list < kFirstGroup) {
      singles_ += change;
    } else if (list < kFirstPinned) {
      groups_ += change;
    } else if (is_early(list)) {
      early_ += change;
    } else {
      singles_ += change;
      pinned_ += change;
    }
  }

  Slots& slots_;
  const uint32_t children_;
  std::vector<List> lists_;
  uint64_t arrivals_ = 0;
  uint64_t singles_ = 0;
  uint64_t pinned_ = 0;  // number of pinned single tasks
  uint64_t groups_ = 0;
  uint64_t early_ = 0;
  uint64_t delayed_ = 0;  // number of tasks with Slot::is_delayed
};

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

// A run. Its number is its index in EngineState::runs, the smallest that no open run has.
struct EngineRun {
  bool is_open = true;  // from its start until all its tasks have finished
  bool is_ending = false;
  std::optional<int64_t> cancelled;  // the cause, once the run is cancelled
  uint64_t tasks = 0;                // number of tasks submitted in this run
  uint64_t unfinished = 0;           // number of these tasks that have not finished
  std::vector<ScopeTasks> scopes;    // the open scopes, the outermost first
  std::vector<std::pair<int64_t, int64_t>> failed;
  std::vector<std::pair<int64_t, int64_t>> poisoned;
  // the last submit if it was blocked and no memory was freed since; otherwise `requested` is 0
  Submitted blocked;

  uint32_t depth() const { return static_cast<uint32_t>(scopes.size()) - 1; }
  // The heap ring of the innermost scope.
  uint32_t ring() const { return std::min(depth(), kRings - 1); }
};

// The state of an engine. Only the state of the children and the rings is kept when a run begins
// while no other run is open.
struct EngineState {
  explicit EngineState(const Configuration& given);

  // Clear the data of the previous runs.
  void restart(Hazards run_hazards);
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
  HeapSpan heap;                // contains all rings
  Instructions* out = nullptr;  // instructions of the current event
  Tracer* tracer = nullptr;     // null: dependencies are not traced
  uint32_t freed_rings = 0;     // rings whose tail has moved in this event, one bit for each ring
  Hazards hazards = Hazards::kRaw;       // those of all open runs
  std::vector<EngineRun> runs;           // by number
  std::vector<ScopeTasks> spare_scopes;  // empty; its memory is for the next run
  uint32_t ending_runs = 0;              // number of open runs that are ending
  int64_t first_task = 0;                // number of the first task since restart()
  uint64_t key_count = 0;  // number of keys that were assigned to OUTPUT tensors of size 0
  uint64_t conservative_edges = 0;
  // (task, root) of each failed or poisoned task since restart()
  std::unordered_map<int64_t, int64_t> roots;
};

}  // namespace pto::worker
