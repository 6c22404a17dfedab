// Tasks, the slots that they live in, and the edges between them.
//
// A task is known by its slot inside the engine, and by its number outside. Numbers go up with each
// submit and never come again; slots do. Invariants: a slot that is free has number kNone; a task
// is in Numbers exactly while its state is not FREE.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "engine/interface.hpp"
#include "engine/mapped.hpp"
#include "engine/states.hpp"

namespace pto::hierarchy {

constexpr uint32_t kNoSlot = 0;
constexpr uint32_t kNoEdge = 0;
constexpr int64_t kNotPoisoned = std::numeric_limits<int64_t>::max();
constexpr uint8_t kNoRing = 0xFF;

constexpr bool poisons(uint8_t why) {
  return (why & (kData | kExplicit)) != 0;
}

// What a task has on an earlier one. In that one's list of consumers until it finishes, where it
// was unfinished; in the task's own list of holds until the task finishes, for kData and kOwner.
struct Edge {
  uint32_t consumer;
  uint32_t producer;
  uint32_t next_consumer;  // of the producer, ascending by number; also links the free ones
  uint32_t next_hold;      // of the consumer
  uint8_t why;
  bool is_waited_for;  // in the list of consumers
};

// Two cache lines: the first is what a dispatch and a completion touch.
struct alignas(64) Slot {
  int64_t number;  // kNone: free
  State state;
  uint8_t kind;
  uint8_t slab_ring;        // kNoRing: it has no slab
  bool is_unfinished;       // reference SELF
  bool is_in_scope;         // reference SCOPE
  bool has_retries : 1;     // declared safe to repeat
  bool is_pinned : 1;       // `pin`, or the group's, are no wishes
  bool keeps_regions : 1;   // saved before it is first sent
  bool has_saved : 1;       // regions
  bool was_skipped : 1;     // in this attempt
  bool has_begun : 1;       // a member of this attempt; known when it ends
  bool has_failure : 1;     // in this attempt: `failure` is the cause of the first
  bool has_root : 1;        // it has failed or was poisoned, finally: `failure` is the root
  uint16_t members;         // 0: an allocation
  uint16_t ended;           // members of this attempt
  uint16_t list;            // of the queues; 0: in none
  int32_t child;            // of a single task in this attempt; kNone: not sent
  uint64_t count;           // the frame of the child
  uint32_t unfinished;      // producers: why it is PENDING, or RUNNING early
  uint32_t poisoning;       // of the unfinished producers, those whose failure is handed on
  uint32_t consumers;       // edges, oldest first
  uint32_t last_consumer;   // the newest of them
  uint32_t holds;           // edges
  uint32_t entries;         // of the region map
  uint32_t consumer_count;  // references CONSUMER
  uint32_t owner_count;     // references OWNER
  uint32_t unfinished_sum;  // exclusive or of their slots: the slot, where there is one
  uint32_t next;            // in its queue, among the finished, or among the free
  uint64_t arrival;         // in its queue
  uint32_t previous;        // in its queue
  uint32_t scope_next;      // in its scope
  uint32_t slab;            // in its ring
  int32_t attempts;         // how often it may still run again
  int64_t poison;           // the root, while it has not finished; else kNotPoisoned
  int64_t failure;          // see has_failure and has_root
  int32_t last_producer;    // child of the producer that finished last, or that it was sent after
  int32_t pin;              // of a single task; kNone. Of a group: the first of its records
  uint32_t follower;        // the consumer without a pin that may be sent early after this attempt
};
static_assert(sizeof(Slot) == 128);

// From the numbers of this run's tasks to their slots, in chunks that go when their tasks have.
class Numbers {
 public:
  void restart(int64_t first) {
    for (auto& chunk : chunks_) recycle(chunk);
    chunks_.clear();
    first_ = first;
  }

  uint32_t slot(int64_t number) const {
    const uint64_t index = static_cast<uint64_t>(number - first_);
    if (number < first_ || index >> kBits >= chunks_.size()) return kNoSlot;
    const auto& chunk = chunks_[index >> kBits];
    return chunk ? chunk->slots[index & kMask] : kNoSlot;
  }

  // Lets the next add() succeed; numbers are added in order.
  void reserve(int64_t number) {
    const uint64_t chunk = static_cast<uint64_t>(number - first_) >> kBits;
    if (chunk < chunks_.size()) return;
    if (spare_.empty()) {
      chunks_.push_back(std::make_unique<Chunk>());
    } else {
      chunks_.push_back(std::move(spare_.back()));
      spare_.pop_back();
    }
  }

  void add(int64_t number, uint32_t slot) {
    const uint64_t index = static_cast<uint64_t>(number - first_);
    Chunk& chunk = *chunks_[index >> kBits];
    chunk.slots[index & kMask] = slot;
    ++chunk.live;
  }

  void remove(int64_t number) {
    const uint64_t index = static_cast<uint64_t>(number - first_);
    auto& chunk = chunks_[index >> kBits];
    chunk->slots[index & kMask] = kNoSlot;
    // The last chunk may still be added to.
    if (--chunk->live == 0 && (index >> kBits) + 1 < chunks_.size()) recycle(chunk);
  }

  // Calls visit(slot) for each, ascending by number; it must not add any.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& chunk : chunks_) {
      for (uint32_t index = 0; chunk && index <= kMask; ++index) {
        if (chunk->slots[index] != kNoSlot) visit(chunk->slots[index]);
      }
    }
  }

 private:
  static constexpr uint32_t kBits = 12;
  static constexpr uint32_t kMask = (1u << kBits) - 1;
  struct Chunk {
    uint32_t slots[kMask + 1] = {};
    uint32_t live = 0;
  };

  void recycle(std::unique_ptr<Chunk>& chunk) {
    if (!chunk) return;
    if (chunk->live > 0) *chunk = {};
    spare_.push_back(std::move(chunk));
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<std::unique_ptr<Chunk>> spare_;  // as many as the longest run had at a time
  int64_t first_ = 0;
};

// The slots, their states, and the tasks by number.
class Slots {
 public:
  explicit Slots(const Transitions& transitions) : transitions_(transitions) {
    new_slot_.slab_ring = kNoRing;
    new_slot_.child = new_slot_.last_producer = new_slot_.pin = static_cast<int32_t>(kNone);
    new_slot_.poison = kNotPoisoned;
  }

  Slot& operator[](uint32_t slot) { return pool_[slot]; }
  const Slot& operator[](uint32_t slot) const { return pool_[slot]; }

  // Lets the next take() succeed. References to slots end here.
  void reserve() {
    pool_.reserve(1);
    numbers_.reserve(next_number_);
  }

  // A task in a free slot, with no references; the caller moves it on.
  uint32_t take() {
    const uint32_t index = pool_.take();
    Slot& slot = pool_[index];
    const State state = slot.state;  // FREE, if the table is right
    slot = new_slot_;
    slot.state = state;
    slot.number = next_number_++;
    numbers_.add(slot.number, index);
    pool_.prefetch_next();
    ++live_;
    return index;
  }

  // Throws kInternal, and changes nothing, for a pair without a row in the table.
  void move(Slot& slot, StateEvent event) {
    const uint8_t next =
        transitions_.next[static_cast<uint8_t>(slot.state)][static_cast<uint8_t>(event)];
    if (next == kNotAState) refuse(slot, event);
    slot.state = static_cast<State>(next);
  }

  // Of a consumed task.
  void give_back(uint32_t index) {
    Slot& slot = pool_[index];
    move(slot, StateEvent::kRecycle);
    numbers_.remove(slot.number);
    slot.number = kNone;
    pool_.give_back(index);
    --live_;
  }

  // No task is alive: numbers before next_number() are not asked for any more.
  void restart() { numbers_.restart(next_number_); }

  const Numbers& numbers() const { return numbers_; }
  uint64_t live() const { return live_; }
  int64_t next_number() const { return next_number_; }
  uint32_t end() const { return pool_.end(); }

 private:
  [[noreturn]] static void refuse(const Slot& slot, StateEvent event) {
    throw Refusal(Refusal::Kind::kInternal,
                  std::string(kStateEventNames[static_cast<uint8_t>(event)]) +
                      " cannot happen to a task that is " +
                      kStateNames[static_cast<uint8_t>(slot.state)] + ": task " +
                      std::to_string(slot.number));
  }

  const Transitions transitions_;
  Slot new_slot_ = {};  // to copy: quicker than to clear
  Pool<Slot, &Slot::next> pool_;
  Numbers numbers_;
  uint64_t live_ = 0;
  int64_t next_number_ = 0;
};

}  // namespace pto::hierarchy
