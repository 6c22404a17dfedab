// The completion of a task. The task releases its consumers, and then the producers that it holds.
// Its slot then retires if the task is the oldest of its ring.
//
// Any scheduler may call these functions for tasks whose kernels have returned on its cores. No
// thread waits: the thread that decrements a count to 0 takes the next step. A thread that finds
// that another thread is already retiring tasks of the ring leaves the work to that thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "clusters.hpp"
#include "pto/engine/context.hpp"
#include "ready.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

class Completion {
 public:
  Completion(Context& context, Rings& rings, Ready& ready, Clusters& clusters)
      : context_(context), rings_(rings), ready_(ready), clusters_(clusters) {}

  // `alone`: there is only one scheduler.
  void begin(bool alone) { alone_ = alone; }

  // Called by lane `thread` when the kernel of `task` has returned. Return, as bits, the rings in
  // which retire() may find a task.
  uint32_t complete(uint32_t thread, SlotRef task, uint32_t core);

  // Retire the oldest tasks of a ring as far as possible. Return the number of retired tasks.
  uint32_t retire(uint32_t ring);

 private:
  uint32_t finish(uint32_t thread, SlotRef task);
  void done(TaskState& state);
  void record_releases(uint32_t thread, SlotRef task, EdgeRef edge);
  void release_consumers(uint32_t thread, SlotRef task, EdgeRef edge);
  uint32_t release_producers(const TaskDescriptor& descriptor);
  uint32_t retire_oldest(TaskRing& ring);
  static bool is_over(const TaskState& state);

  Context& context_;
  Rings& rings_;
  Ready& ready_;
  Clusters& clusters_;
  bool alone_ = false;
};

}  // namespace pto::ring_buffer
