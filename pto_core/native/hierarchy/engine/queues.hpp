// The queues of tasks that wait to be sent. A queue keeps the order in which tasks entered it.
//
// A queue has a list for each destination, so that the dispatcher reads only tasks that can be
// sent. `Slot::arrival` is the position of a task in the order over all lists. Invariants: a task
// is in a list of singles or groups if and only if it is READY. A task in an early list is PENDING
// and waits for exactly one producer, which is RUNNING; it may be sent before this producer ends.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/slots.hpp"

namespace pto::hierarchy {

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

  // Remove a task, if it is in a queue, because its state or the state of its producer changes.
  void remove(Slot& slot) {
    if (slot.list == 0) return;
    List& list = lists_[slot.list];
    (slot.previous == kNoSlot ? list.head : slots_[slot.previous].next) = slot.next;
    (slot.next == kNoSlot ? list.tail : slots_[slot.next].previous) = slot.previous;
    count(slot.list, -1);
    slot.list = 0;
  }

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
};

}  // namespace pto::hierarchy
