// What happens when a kernel has returned: consumers are released, then the producers that the task
// held, then the slot retires when it is the oldest of its ring.
//
// Any scheduler may call any of this at any time for tasks whose kernels it has seen return. Nobody
// waits: whoever brings a count to 0 does what follows, and who finds another one at a ring's
// retirement leaves the rest to it.
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

  // `alone`: there is one scheduler.
  void begin(bool alone) { alone_ = alone; }

  // Lane `thread`: the kernel of `task` has returned. Gives the rings, by bit, in which retire()
  // may now find something.
  uint32_t complete(uint32_t thread, SlotRef task, uint32_t core);

  // Lets the oldest tasks of a ring retire as far as they can; gives how many.
  uint32_t retire(uint32_t ring);

 private:
  uint32_t finish(uint32_t thread, SlotRef task);
  void done(TaskState& state);
  void release_consumers(uint32_t thread, EdgeRef edge);
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
