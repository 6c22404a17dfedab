// Tasks, their slots, and the edges between them.
//
// The engine identifies a task by its slot; all other code uses its number. Numbers increase with
// each submit and are never reused; slots are. Invariants: a free slot has number kNone; a task is
// in Numbers if and only if its state is not FREE.
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

// An edge from a task to an earlier one. It is in the producer's list of consumers until the
// producer finishes. If it has kData or kOwner, it is also in the task's own list of holds until
// the task finishes.
struct Edge {
  uint32_t consumer;
  uint32_t producer;
  // links the consumers of the producer, ascending by number, or the free edges
  uint32_t next_consumer;
  uint32_t next_hold;  // next edge in the consumer's list of holds
  uint8_t why;
  bool is_waited_for;  // in the list of consumers
};

// The structure has two cache lines; dispatches and completions use only the first.
struct alignas(64) Slot {
  int64_t number;  // kNone: the slot is free
  State state;
  uint8_t kind;
  uint8_t slab_ring;       // kNoRing: it has no slab
  bool is_unfinished;      // reference that the task holds on itself until it has finished
  bool is_in_scope;        // reference that its scope holds
  bool has_retries : 1;    // retries are declared: repeating the task is safe
  bool is_pinned : 1;      // `pin`, or the pins of the group, are mandatory
  bool keeps_regions : 1;  // its regions were saved before it was sent for the first time
  bool has_saved : 1;      // regions
  bool was_skipped : 1;    // in this attempt
  bool has_begun : 1;      // a member failed in this attempt; final once the attempt has ended
  bool has_failure : 1;    // in this attempt; `failure` is the cause of the first
  bool has_root : 1;       // it has failed for good or was poisoned; `failure` is the root
  uint16_t members;        // 0: an allocation
  uint16_t ended;          // members of this attempt
  uint16_t list;           // number of the queue that contains it; 0: none
  int32_t child;           // child of a single task in this attempt; kNone: not sent
  uint64_t count;          // number of its frame in the child
  uint32_t unfinished;     // unfinished producers, because of which it is PENDING or was sent early
  uint32_t poisoning;      // unfinished producers whose failure poisons it
  uint32_t consumers;      // edges to its consumers, oldest first
  uint32_t last_consumer;  // newest of its edges
  uint32_t holds;          // edges
  uint32_t entries;        // its entries in the region map
  uint32_t consumer_count;  // number of references of consumers
  uint32_t owner_count;     // number of references of owners
  uint32_t unfinished_sum;  // XOR of their slots: the slot itself if there is only one
  uint32_t next;            // in its queue, among the finished, or among the free
  uint64_t arrival;         // in its queue
  uint32_t previous;        // in its queue
  uint32_t scope_next;      // in its scope
  uint32_t slab;            // in its ring
  int32_t attempts;         // remaining retries
  // the failed task that poisons it while it has not finished; otherwise kNotPoisoned
  int64_t poison;
  int64_t failure;  // see has_failure and has_root
  // child of the producer that finished last, or behind which the task was sent early
  int32_t last_producer;
  int32_t pin;  // for a group: index of its first record; otherwise the pinned child, or kNone
  uint32_t follower;  // the unpinned consumer that may be sent early behind this attempt
};
static_assert(sizeof(Slot) == 128);

// A map from the task numbers of this run to slots. Its chunks are freed when all their tasks are
// consumed.
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

  // Reserve memory for the next add(). Numbers are added in order.
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

  // Call visit(slot) for each task, ascending by number. visit must not add tasks.
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
  // chunks to reuse; as many as the maximum over all runs
  std::vector<std::unique_ptr<Chunk>> spare_;
  int64_t first_ = 0;
};

// The slots, their states, and the tasks by number.
class Slots {
 public:
  Slots() {
    new_slot_.slab_ring = kNoRing;
    new_slot_.child = new_slot_.last_producer = new_slot_.pin = static_cast<int32_t>(kNone);
    new_slot_.poison = kNotPoisoned;
  }

  Slot& operator[](uint32_t slot) { return pool_[slot]; }
  const Slot& operator[](uint32_t slot) const { return pool_[slot]; }

  // Reserve memory for the next take(). References to slots become invalid.
  void reserve() {
    pool_.reserve(1);
    numbers_.reserve(next_number_);
  }

  // Create a task in a free slot, without references. The caller sets its state.
  uint32_t take() {
    const uint32_t index = pool_.take();
    Slot& slot = pool_[index];
    const State state = slot.state;  // FREE unless the table is wrong
    slot = new_slot_;
    slot.state = state;
    slot.number = next_number_++;
    numbers_.add(slot.number, index);
    pool_.prefetch_next();
    ++live_;
    return index;
  }

  // Throw kInternal, and change nothing, if the table has no row for this state and event.
  void move(Slot& slot, StateEvent event) {
    const uint8_t next =
        kTransitions.next[static_cast<uint8_t>(slot.state)][static_cast<uint8_t>(event)];
    if (next == kNotAState) refuse(slot, event);
    slot.state = static_cast<State>(next);
  }

  // Free the slot of a consumed task.
  void give_back(uint32_t index) {
    Slot& slot = pool_[index];
    move(slot, StateEvent::kRecycle);
    numbers_.remove(slot.number);
    slot.number = kNone;
    pool_.give_back(index);
    --live_;
  }

  // Call while no task is alive. Numbers below next_number() are no longer looked up.
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

  Slot new_slot_ = {};  // a copy is faster than clearing
  Pool<Slot, &Slot::next> pool_;
  Numbers numbers_;
  uint64_t live_ = 0;
  int64_t next_number_ = 0;
};

}  // namespace pto::hierarchy
