// The reservations in each heap ring since the start of the run. A deadlock report computes from
// them exactly which heap size would have sufficed, because the placement depends only on this
// sequence and on the size.
//
// Each event is one word: a reservation in slabs of 1024 bytes, or kReleased. When a scope ends and
// scope_released of a ring changes, the new value is the number of the ring's next task: an outer
// scope with tasks in the same ring would have prevented the change. So a release always empties
// the ring, and needs no operand.
//
// Called by the orchestrator only. A new run clears no memory; only the pages that a run needs are
// touched.
#pragma once

#include <cstdint>

#include "pto/engine/memory.hpp"
#include "task.hpp"

namespace pto::ring_buffer {

class History {
 public:
  static constexpr uint32_t kMaxEvents = 1u << 20;  // events of one ring
  static constexpr uint32_t kReleased = 0;
  static constexpr uint64_t kSlabBytes = 1024;
  static constexpr uint64_t whole_slabs(uint64_t bytes) {
    return (bytes + (kSlabBytes - 1)) & ~(kSlabBytes - 1);
  }

  bool create(engine::Memory& memory) {
    memory_ = &memory;
    events_ = static_cast<uint32_t*>(memory.reserve(kBytes));
    return events_ != nullptr;
  }

  void destroy() {
    if (memory_ != nullptr) memory_->release(events_, kBytes);
  }

  void begin() {
    for (Ring& ring : rings_) ring = {};
  }

  // Record a reservation. `bytes` is a multiple of 1024 and not 0.
  void reserve(uint32_t ring, uint64_t bytes) {
    Ring& state = rings_[ring];
    state.held_bytes += bytes;
    if (state.held_bytes > state.most_bytes) state.most_bytes = state.held_bytes;
    const uint64_t slabs = bytes / kSlabBytes;
    if (slabs > kMostSlabs) state.is_cut = true;
    add(state, ring, static_cast<uint32_t>(slabs > kMostSlabs ? kMostSlabs : slabs));
  }

  // Record that every task of the ring belongs to an ended scope.
  void release(uint32_t ring) {
    Ring& state = rings_[ring];
    if (state.held_bytes == 0) return;
    state.held_bytes = 0;
    add(state, ring, kReleased);
  }

  // Return the maximum total size that tasks of open scopes held at the same time. No smaller heap
  // can suffice.
  uint64_t most_bytes(uint32_t ring) const { return rings_[ring].most_bytes; }

  // Return false if the run had too many events, or an event that is too large to record. Results
  // that are computed from the events are then lower bounds.
  bool is_complete(uint32_t ring) const { return !rings_[ring].is_cut; }

  const uint32_t* events(uint32_t ring) const { return events_ + ring * kMaxEvents; }
  uint32_t count(uint32_t ring) const { return rings_[ring].count; }

 private:
  static constexpr uint64_t kMostSlabs = 0xFFFFFFFFu;
  static constexpr size_t kBytes = sizeof(uint32_t) * kMaxEvents * kRings;

  struct Ring {
    uint64_t held_bytes = 0;
    uint64_t most_bytes = 0;
    uint32_t count = 0;
    bool is_cut = false;
  };

  void add(Ring& state, uint32_t ring, uint32_t event) {
    if (state.count == kMaxEvents) {
      state.is_cut = true;
      return;
    }
    events_[ring * kMaxEvents + state.count++] = event;
  }

  engine::Memory* memory_ = nullptr;
  uint32_t* events_ = nullptr;
  Ring rings_[kRings];
};

}  // namespace pto::ring_buffer
