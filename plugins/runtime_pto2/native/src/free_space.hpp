// The orchestrator's reservations in the four rings, and the resources that retired tasks have
// freed.
//
// Schedulers advance the watermark of a ring when its tasks retire. sync() reads the watermark and
// frees the resources of these tasks: slots, heap, payloads, and entries of the dependency pool and
// of the tensor map.
//
// Only the orchestrator calls these methods. While it waits, the thread that checks for a deadlock
// may also read the data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "options.hpp"
#include "pto/abi/payload.h"
#include "pto/engine/heap_ring.hpp"
#include "pto/engine/memory.hpp"
#include "rings.hpp"
#include "statistics.hpp"
#include "tensor_map.hpp"

namespace pto::ring_buffer {

// Memory for the payloads of live tasks: blocks of a few sizes that are reused when tasks retire.
//
// The block that was freed last is reused first, because it is still in the cache. A new run clears
// no memory: it divides the same chunks again. Used by the orchestrator only.
class Payloads {
 public:
  static constexpr uint32_t kSmallest = 256;
  static constexpr uint32_t kClasses = 6;  // sizes from 256 to 8192 bytes
  static constexpr uint32_t kLargest = kSmallest << (kClasses - 1);

  bool create(engine::Memory& memory) { return chunks_.create(memory); }
  void destroy() { chunks_.destroy(); }

  void begin() {
    chunks_.restart();
    for (Free*& free : free_) free = nullptr;
  }

  // Return the size class for a length of 1 to kLargest bytes.
  static uint32_t class_of(uint32_t length) {
    const uint32_t blocks = (length - 1) / kSmallest;
    return blocks == 0 ? 0 : 32 - static_cast<uint32_t>(__builtin_clz(blocks));
  }

  // Return a block of the size class; NULL if memory is exhausted.
  pto_payload* take(uint32_t size_class) {
    Free* block = free_[size_class];
    if (block == nullptr) {
      return static_cast<pto_payload*>(chunks_.allocate(size_t{kSmallest} << size_class));
    }
    free_[size_class] = block->next;
    return reinterpret_cast<pto_payload*>(block);
  }

  void give_back(pto_payload* payload, uint32_t size_class) {
    Free* block = reinterpret_cast<Free*>(payload);
    block->next = free_[size_class];
    free_[size_class] = block;
  }

 private:
  struct Free {
    Free* next;
  };

  engine::Arena chunks_;
  Free* free_[kClasses] = {};
};

struct RingSpace {
  // tasks before this number have retired, and their entries and payloads are free
  int64_t alive = 0;
  int64_t edges_alive = 0;  // the edges of tasks before this number are free
  uint64_t heap_tail = 0;   // virtual offset in the heap ring; the memory before it is free
  uint64_t edges_tail = 0;
  HeapRing heap;
  HeapRing edges;
};

class FreeSpace {
 public:
  explicit FreeSpace(Rings& rings) : rings_(rings) {}

  Shortage create(Memory& memory, const Options& options);
  void destroy();
  void begin(const Options& options, bool full_hazards);

  // Free the retired tasks of each ring in which at least `least` tasks have retired since the last
  // call.
  void sync(CleanedBy reason, int64_t least);
  void sync_ring(uint32_t ring, CleanedBy reason) {
    const int64_t retired = rings_.ring[ring].watermark.load(std::memory_order_seq_cst);
    if (retired != spaces_[ring].alive) free_retired(ring, retired, reason);
  }
  // Called once for each submit. Calls sync() when enough tasks may have retired since the last
  // call.
  void sync_at_intervals() {
    if (--submits_to_sync_ == 0) sync(CleanedBy::kBatch, kBatch);
  }

  // Free the edges of completed tasks before `end`, whether or not their scope has ended.
  void free_done_edges(uint32_t ring, int64_t end);

  bool has_slots(uint32_t ring, uint32_t count) const {
    const TaskRing& tasks = rings_.ring[ring];
    return tasks.next + count - spaces_[ring].alive < static_cast<int64_t>(tasks.window);
  }
  // Return whether the newest task of the slot has retired.
  bool has_retired(SlotRef task) const;
  RingUse use(uint32_t ring) const;

  RingSpace& ring(uint32_t index) { return spaces_[index]; }
  const RingSpace& ring(uint32_t index) const { return spaces_[index]; }
  TensorMap& map() { return map_; }
  const TensorMap& map() const { return map_; }
  Payloads& payloads() { return payloads_; }

 private:
  void free_retired(uint32_t ring, int64_t retired, CleanedBy reason);

  static constexpr uint32_t kSyncInterval = 64;  // number of submits
  // the number of retired tasks for which a pass is worth its cost
  static constexpr int64_t kBatch = 64;

  Rings& rings_;
  TensorMap map_;
  Payloads payloads_;
  RingSpace spaces_[kRings];
  uint32_t submits_to_sync_ = 0;
};

}  // namespace pto::ring_buffer
