// The edges of the submit that is in progress. Used by the orchestrator only.
#pragma once

#include <cstdint>

#include "pto/engine/memory.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

// The producers of one task. Each producer is listed once, even if several accesses need the edge.
class EdgeList {
 public:
  struct Item {
    SlotRef producer;
    uint32_t kind;  // bits of EdgeKind
  };

  // Reserve memory for producers in windows of these sizes. Return false if memory is exhausted.
  bool create(engine::Memory& memory, const uint64_t* windows);
  // Reserve memory for windows of up to this size. The list does not change.
  bool grow(engine::Memory& memory, uint64_t window);
  void destroy(engine::Memory& memory);

  void clear() { count_ = 0; }

  // Add an edge. Return the bits of `kind` that no earlier edge from this producer has.
  uint32_t add(SlotRef producer, uint32_t kind) {
    if (count_ > kScanned) return add_marked(producer, kind);
    for (uint32_t index = 0; index < count_; ++index) {
      if (items_[index].producer == producer) return merge(items_[index], kind);
    }
    if (count_ == kScanned) return add_marked(producer, kind);
    items_[count_++] = {producer, kind};
    return kind;
  }

  // Remove the producers for which `is_over` returns true.
  template <class IsOver>
  void drop(IsOver is_over) {
    uint32_t kept = 0;
    for (uint32_t index = 0; index < count_; ++index) {
      if (!is_over(items_[index].producer)) items_[kept++] = items_[index];
    }
    count_ = kept;
    if (count_ > kScanned) mark_all();
  }

  // Sort the edges by producer, so that their order does not depend on the addresses of tensors. No
  // edge is added afterwards.
  void sort();

  uint32_t count() const { return count_; }
  const Item* begin() const { return items_; }
  const Item* end() const { return items_ + count_; }

 private:
  static constexpr uint32_t kScanned = 12;

  static uint32_t merge(Item& item, uint32_t kind) {
    const uint32_t added = kind & ~item.kind;
    item.kind |= kind;
    return added;
  }

  uint32_t add_marked(SlotRef producer, uint32_t kind);
  void mark_all();
  uint32_t& mark(SlotRef producer) { return marks_[ring_of(producer)][slot_of(producer)]; }

  Item* items_ = nullptr;
  uint32_t count_ = 0;
  uint64_t capacity_ = 0;
  uint64_t windows_[kRings] = {};
  // Used if there are more than kScanned items: for each slot, the index of its item in items_. The
  // memory is never cleared, so an entry is valid only if that item names the slot.
  uint32_t* marks_[kRings] = {};
};

}  // namespace pto::ring_buffer
