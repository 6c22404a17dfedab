// Tasks, their slots, and the edges between them.
//
// The engine identifies a task by its slot; all other code uses its number. Numbers increase with
// each submit and are never reused. Slots are reused. Invariants: a free slot has number kNone; a
// task is in Numbers if and only if its state is not FREE.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "engine/interface.hpp"
#include "engine/states.hpp"

namespace pto::worker {

// Tables of the engine: elements with an index, in one mapping that grows without copying.
//
// Forked children do not inherit the memory, so a child that is started during a large run does not
// keep a copy of it. A child must not access the memory. A reference to an element is valid until
// the table grows.
//
// Only one thread may use it.

// A growing array of elements, which start as zero.
template <class T>
class MappedArray {
  static_assert(std::is_trivially_copyable_v<T>, "elements are moved as pages");

 public:
  explicit MappedArray(uint64_t capacity) : capacity_(capacity) {
    void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, bytes(), MADV_DONTFORK);
    elements_ = static_cast<T*>(memory);
  }
  ~MappedArray() { munmap(elements_, bytes()); }
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;

  T& operator[](uint64_t index) { return elements_[index]; }
  const T& operator[](uint64_t index) const { return elements_[index]; }
  uint64_t capacity() const { return capacity_; }

  // Ensure that there is space for `count` elements. If memory is exhausted, throw std::bad_alloc
  // and change nothing.
  void reserve(uint64_t count) {
    if (count <= capacity_) return;
    uint64_t larger = capacity_;
    while (larger < count) larger *= 2;
    void* memory = mremap(elements_, bytes(), larger * sizeof(T), MREMAP_MAYMOVE);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    elements_ = static_cast<T*>(memory);
    capacity_ = larger;
  }

 private:
  size_t bytes() const { return capacity_ * sizeof(T); }

  T* elements_;
  uint64_t capacity_;
};

// A pool of elements that are identified by an index from 1; index 0 means none. `kLink` links the
// free elements.
template <class T, uint32_t T::* kLink>
class Pool {
 public:
  static constexpr uint64_t kFirstCapacity = 4096;

  Pool() : elements_(kFirstCapacity) {}

  T& operator[](uint32_t index) { return elements_[index]; }
  const T& operator[](uint32_t index) const { return elements_[index]; }

  // Reserve memory, so that the next `count` calls of take() do not grow the table.
  void reserve(uint64_t count) {
    const uint64_t unused = end_ + count;
    if (unused > elements_.capacity()) elements_.reserve(unused);
  }

  // Take an element. Its content is that of its last use, or zero. reserve() must have been called
  // before.
  uint32_t take() {
    if (free_ == 0) return end_++;
    const uint32_t index = free_;
    free_ = elements_[index].*kLink;
    return index;
  }

  // Prefetch the element that take() will return.
  void prefetch_next() const {
    const char* next = reinterpret_cast<const char*>(&elements_[free_ == 0 ? end_ : free_]);
    for (size_t line = 0; line < sizeof(T); line += 64) __builtin_prefetch(next + line, 1);
  }

  void give_back(uint32_t index) {
    elements_[index].*kLink = free_;
    free_ = index;
  }

  // The elements that have been taken so far have the indices 1 to end() - 1.
  uint32_t end() const { return end_; }

 private:
  MappedArray<T> elements_;
  uint32_t end_ = 1;
  uint32_t free_ = 0;
};

constexpr uint32_t kNoSlot = 0;
constexpr uint32_t kNoEdge = 0;
constexpr int64_t kNotPoisoned = std::numeric_limits<int64_t>::max();
constexpr uint8_t kNoRing = 0xFF;

constexpr bool poisons(uint8_t why) {
  return (why & (kData | kExplicit)) != 0;
}

// An edge from a task to an earlier task. The edge is in the producer's list of consumers until the
// producer finishes. An edge with kData or kOwner is also in the task's own list of holds until the
// task finishes.
struct Edge {
  uint32_t consumer;
  uint32_t producer;
  // links the consumers of the producer, ascending by number; also links the free edges
  uint32_t next_consumer;
  uint32_t next_hold;  // next edge in the consumer's list of holds
  uint8_t why;
  bool is_waited_for;  // whether it is in the producer's list of consumers
};

// The state of a task. It occupies two cache lines; dispatches and completions use only the first.
struct alignas(64) Slot {
  int64_t number;  // kNone: the slot is free
  TaskState state;
  uint8_t kind;
  uint8_t slab_ring;       // kNoRing: it has no slab
  bool is_unfinished : 1;  // whether the task, which has not finished, holds a reference to itself
  bool is_in_scope : 1;    // whether its scope holds a reference to it
  // whether the driver has withdrawn its frame, or a frame that its frame requires
  bool may_be_skipped : 1;
  // whether it was cancelled while it was in no child; `failure` is the cause
  bool is_cancelled : 1;
  // whether its next attempt must wait; then it is PENDING without a producer
  bool is_delayed : 1;
  bool : 0;                // the next flags are in another byte
  bool has_retries : 1;    // whether retries are declared, so that repeating the task is safe
  bool is_pinned : 1;      // whether `pin`, or the pins of the group, are mandatory
  bool keeps_regions : 1;  // whether its regions are saved before it is sent for the first time
  bool has_saved : 1;      // whether its regions have been saved
  bool was_skipped : 1;    // whether one of its frames was skipped in this attempt
  // whether a member has begun in this attempt; final once the attempt has ended
  bool has_begun : 1;
  // whether a member has failed in this attempt; `failure` is the cause of the first failure
  bool has_failure : 1;
  bool has_root : 1;  // whether the task has failed for good or was poisoned; `failure` is the root
  uint8_t run;        // number of its run; valid until the task has finished
  uint16_t members;   // number of members; 0: an allocation
  uint16_t ended;     // number of members of this attempt that have ended
  uint16_t list;      // number of the queue list that contains it; 0: none
  int32_t child;      // child of a single task in this attempt; kNone: not sent
  uint64_t count;     // number of its frame in the child
  // number of unfinished producers, because of which it is PENDING or was sent early
  uint32_t unfinished;
  uint32_t poisoning;       // number of unfinished producers whose failure poisons it
  uint32_t consumers;       // first edge to its consumers, oldest consumer first
  uint32_t last_consumer;   // newest edge of that list
  uint32_t holds;           // index of the first edge in its list of holds
  uint32_t entries;         // first of its entries in the region map
  uint32_t consumer_count;  // number of references that consumers hold
  uint32_t owner_count;     // number of references that owners hold
  // XOR of the slots of its unfinished producers: if there is only one, the slot of this producer
  uint32_t unfinished_sum;
  uint32_t next;        // next task in its queue, among the finished tasks, or among the free slots
  uint64_t arrival;     // position in the order over all queues
  uint32_t previous;    // previous task in its queue
  uint32_t scope_next;  // next task of its scope
  uint32_t slab;        // slab in its ring
  int32_t attempts;     // remaining retries
  // the failed task that poisons this unfinished task; otherwise kNotPoisoned
  int64_t poison;
  int64_t failure;  // see has_failure and has_root
  // child of the producer that finished last, or after which the task was sent early
  int32_t last_producer;
  int32_t pin;  // for a group the index of its first record, otherwise the pinned child or kNone
  uint32_t follower;  // the unpinned consumer that may be sent early in this attempt
};
static_assert(sizeof(Slot) == 128);

// A map from the task numbers since restart() to slots. A chunk is freed when all its tasks are
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
    // Keep the last chunk, because numbers may still be added to it.
    if (--chunk->live == 0 && (index >> kBits) + 1 < chunks_.size()) recycle(chunk);
  }

  // Call visit(slot) for each task, ascending by number. visit() must not add tasks.
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
  // chunks to reuse
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
    const TaskState state = slot.state;  // FREE, unless the transition table is wrong
    slot = new_slot_;
    slot.state = state;
    slot.number = next_number_++;
    numbers_.add(slot.number, index);
    pool_.prefetch_next();
    ++live_;
    return index;
  }

  // Change the state. If the table has no transition for this state and event, throw kInternal and
  // change nothing.
  void move(Slot& slot, TaskEvent event) {
    const uint8_t next =
        kTransitions.next[static_cast<uint8_t>(slot.state)][static_cast<uint8_t>(event)];
    if (next == kNotAState) refuse(slot, event);
    slot.state = static_cast<TaskState>(next);
  }

  // Free the slot of a consumed task.
  void give_back(uint32_t index) {
    Slot& slot = pool_[index];
    move(slot, TaskEvent::kRecycle);
    numbers_.remove(slot.number);
    slot.number = kNone;
    pool_.give_back(index);
    --live_;
  }

  // Forget the tasks of the previous run. Call this while no task is alive. Later look-ups find no
  // number below next_number().
  void restart() { numbers_.restart(next_number_); }

  const Numbers& numbers() const { return numbers_; }
  uint64_t live() const { return live_; }
  int64_t next_number() const { return next_number_; }
  uint32_t end() const { return pool_.end(); }

 private:
  [[noreturn]] static void refuse(const Slot& slot, TaskEvent event) {
    throw Refusal(Refusal::Kind::kInternal,
                  std::string(kStateEventNames[static_cast<uint8_t>(event)]) +
                      " cannot happen to a task that is " +
                      kStateNames[static_cast<uint8_t>(slot.state)] + ": task " +
                      std::to_string(slot.number));
  }

  Slot new_slot_ = {};  // an initialised slot to copy, because this is faster than clearing a slot
  Pool<Slot, &Slot::next> pool_;
  Numbers numbers_;
  uint64_t live_ = 0;
  int64_t next_number_ = 0;
};

}  // namespace pto::worker
