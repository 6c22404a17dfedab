// The tasks whose blocks start at the same time (sync start), and the cores that they gather.
//
// One task at a time gathers, in the order in which the tasks became ready. Each lane leaves its
// free cores of the needed type to it, and no other task gets these cores. So the task does not
// starve, and two such tasks never wait for each other's cores. The lane that leaves the last core
// takes all of them: it dispatches the blocks in one batch and collects them. Then it returns the
// cores of other lanes.
//
// Lanes call these functions in their steps. No lane waits for the lock: a lane that does not get
// it tries again in its next step.
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/engine/core_mask.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

// The queue of tasks that run on several cores of a cluster at the same time. The other queues have
// the numbers of the core types.
constexpr uint32_t kClusterQueue = PTO_CORE_TYPES;
constexpr uint32_t kQueues = PTO_CORE_TYPES + 1;

class Cohorts {
 public:
  // What the task that gathers still needs. `number` is 0 if no task gathers.
  struct Wanted {
    uint32_t queue;   // PTO_CORE_* for cores, or kClusterQueue for clusters
    uint32_t number;  // of cores or clusters
  };

  void begin() {
    count_.store(0, std::memory_order_relaxed);
    first_.store(kNoSlot, std::memory_order_relaxed);
    wanted_.store(0, std::memory_order_relaxed);
    is_locked_.store(0, std::memory_order_relaxed);
    for (auto& word : returned_) word.store(0, std::memory_order_relaxed);
    oldest_ = kNoSlot;
    cores_ = {};
  }

  // Add a ready task, by its first block.
  void add(const Rings& rings, SlotRef head) {
    count_.fetch_add(1, std::memory_order_seq_cst);
    SlotRef first = first_.load(std::memory_order_relaxed);
    do {
      rings.state(head).next_ready = first;
    } while (!first_.compare_exchange_weak(first, head, std::memory_order_seq_cst,
                                           std::memory_order_relaxed));
  }

  // Return whether a task gathers or is about to.
  bool has_any() const { return count_.load(std::memory_order_seq_cst) != 0; }
  Wanted wanted() const {
    const uint32_t word = wanted_.load(std::memory_order_seq_cst);
    return {word >> 16, word & 0xFFFF};
  }

  bool try_lock() {
    return is_locked_.load(std::memory_order_relaxed) == 0 &&
           is_locked_.exchange(1, std::memory_order_acquire) == 0;
  }
  void unlock() { is_locked_.store(0, std::memory_order_release); }

  // Called with the lock held, while no task gathers: start with the next one. Return its first
  // block; kNoSlot if there is none.
  SlotRef start(const Rings& rings) {
    if (oldest_ == kNoSlot) receive(rings);
    head_ = oldest_;
    if (head_ == kNoSlot) return kNoSlot;
    oldest_ = rings.state(head_).next_ready;
    const TaskDescriptor& descriptor = rings.descriptor(head_);
    want({descriptor.lanes != 0 ? kClusterQueue : descriptor.traits & kCoreType,
          descriptor.block_dim});
    return head_;
  }
  // Called with the lock held, while a task gathers: leave `number` cores or clusters to it.
  void leave(const pto_core_mask& cores, uint32_t number) {
    for (uint32_t word = 0; word < 2; ++word) cores_.words[word] |= cores.words[word];
    const Wanted before = wanted();
    want({before.queue, before.number - number});
  }
  SlotRef head() const { return head_; }
  // Called with the lock held, after the last core was left: take the cores of the task.
  pto_core_mask take() {
    const pto_core_mask cores = cores_;
    cores_ = {};
    count_.fetch_sub(1, std::memory_order_seq_cst);
    return cores;
  }

  // Return cores to the lanes that left them.
  void give_back(const pto_core_mask& cores) {
    for (uint32_t word = 0; word < 2; ++word) {
      returned_[word].fetch_or(cores.words[word], std::memory_order_seq_cst);
    }
  }
  // Called by the lane that left `cores`: return those that it has back.
  pto_core_mask returned(const pto_core_mask& cores) const {
    return {{returned_[0].load(std::memory_order_seq_cst) & cores.words[0],
             returned_[1].load(std::memory_order_seq_cst) & cores.words[1]}};
  }
  void take_back(const pto_core_mask& cores) {
    for (uint32_t word = 0; word < 2; ++word) {
      returned_[word].fetch_and(~cores.words[word], std::memory_order_acq_rel);
    }
  }

 private:
  void want(Wanted wanted) {
    const uint32_t word = wanted.number == 0 ? 0 : wanted.queue << 16 | wanted.number;
    wanted_.store(word, std::memory_order_seq_cst);
  }
  // Move the added tasks to the list `oldest_`, the oldest first.
  void receive(const Rings& rings) {
    SlotRef next = first_.exchange(kNoSlot, std::memory_order_acquire);
    while (next != kNoSlot) {
      const SlotRef task = next;
      next = rings.state(task).next_ready;
      rings.state(task).next_ready = oldest_;
      oldest_ = task;
    }
  }

  std::atomic<uint32_t> count_{0};       // tasks that were added and did not take their cores yet
  std::atomic<SlotRef> first_{kNoSlot};  // a stack of added tasks
  std::atomic<uint32_t> wanted_{0};      // a Wanted
  std::atomic<uint64_t> returned_[2] = {0, 0};
  std::atomic<uint32_t> is_locked_{0};
  // Guarded by the lock:
  SlotRef oldest_ = kNoSlot;
  SlotRef head_ = kNoSlot;  // the task that gathers
  pto_core_mask cores_ = {};
};

}  // namespace pto::ring_buffer
