// Dispatches ready tasks to the free cores of a scheduler thread.
//
// Each function works on one lane, which is the state of one scheduler thread. Only the thread
// inside step() of this lane uses it.
#pragma once

#include <atomic>
#include <cstdint>

#include "lane_statistics.hpp"
#include "pto/engine/context.hpp"
#include "ready.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

// The data that a scheduler thread owns.
struct alignas(64) Lane {
  uint32_t thread;
  uint32_t in_flight;
  bool is_eager;                   // whether the lane was about to become idle after its last step
  uint32_t fills[PTO_CORE_TYPES];  // number of times that the lane found tasks for free cores
  uint32_t free_count[PTO_CORE_TYPES];
  pto_core_mask free_cores[PTO_CORE_TYPES];
  // the number of the lane's completed tasks that are already included in completed_
  int64_t counted;
  char* scratch;     // memory for payloads of blocks, in use until dispatch() has copied them
  uint32_t used;     // bytes of scratch in use
  uint32_t batched;  // tasks in batch
  std::atomic<int64_t> dispatched;  // other threads read these two values
  std::atomic<int64_t> completed;
  LaneStatistics statistics;
  SlotRef running[PTO_MAX_CORES];
  pto_dispatch batch[PTO_MAX_CORES];
};

inline bool contains(const pto_core_mask& mask, uint32_t core) {
  return (mask.words[core / 64] >> (core % 64) & 1) != 0;
}

inline uint32_t first_of(const pto_core_mask& mask) {
  const uint32_t word = mask.words[0] != 0 ? 0 : 1;
  return word * 64 + static_cast<uint32_t>(__builtin_ctzll(mask.words[word]));
}

class Dispatcher {
 public:
  Dispatcher(Context& context, Rings& rings, Ready& ready)
      : context_(context), rings_(rings), ready_(ready) {}

  // The size of Lane::scratch in bytes. It contains the payloads of the blocks in one batch. When
  // it is full, the batch is dispatched early.
  static constexpr uint32_t kScratchBytes = 64 * 1024;
  static_assert(kScratchBytes >= PTO_MAX_PAYLOAD, "scratch must be large enough for a payload");

  // Mark the core as free.
  void free_core(Lane& lane, uint32_t core);
  // Take ready tasks and dispatch them in one batch. Return whether there was a task.
  bool fill_cores(Lane& lane);

 private:
  void fill_unpinned(Lane& lane, uint32_t type, bool others_first);
  void fill_pinned(Lane& lane, uint32_t type);
  void prefetch_payload(SlotRef task) const;
  void put_on_core(Lane& lane, uint32_t type, uint32_t core, SlotRef task);
  const pto_payload* block_payload(Lane& lane, const TaskDescriptor& descriptor);
  void dispatch(Lane& lane);

  Context& context_;
  Rings& rings_;
  Ready& ready_;
};

}  // namespace pto::ring_buffer
