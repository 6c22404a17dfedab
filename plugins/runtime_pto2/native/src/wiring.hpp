// Wiring: read the stream of submits and connect each task with its producers (the published name
// is "incremental scan").
//
// One scheduler at a time does the wiring, in stream order. It holds a lock for which no other
// thread waits. Tasks without an uncompleted producer go directly to the ready queues (the
// published name is "early-ready drain").
#pragma once

#include <atomic>
#include <cstdint>

#include "lane_statistics.hpp"
#include "ready.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

class Wiring {
 public:
  static constexpr uint32_t kBatch = 64;  // maximum number of submits in one step

  Wiring(Rings& rings, Ready& ready) : rings_(rings), ready_(ready) {}

  // Reset the members `wired`, `watermark` and `releasable` of the rings. `alone`: there is only
  // one scheduler.
  void begin(bool alone);

  struct Step {
    uint32_t wired;  // number of submits
    uint32_t rings;  // the rings, as bits, in which more tasks may be able to retire now
  };
  // Called by lane `thread`: connect a batch of the stream, unless another thread is connecting
  // one. `eager`: include submits that were not announced yet.
  Step step(uint32_t thread, bool eager, LaneStatistics& statistics);

  // Return whether step() would find work. The wiring thread calls this before it becomes idle.
  bool has_news(bool eager) const;
  bool is_at_work() const { return is_locked_.load(std::memory_order_seq_cst) != 0; }
  // Return the number of connected tasks so far; each block counts.
  int64_t tasks() const { return tasks_.load(std::memory_order_acquire); }

 private:
  void look(bool eager);
  uint32_t wire_batch(uint32_t thread, LaneStatistics& statistics);
  void prefetch(uint64_t position);
  uint32_t wire(uint32_t thread, SlotRef head, LaneStatistics& statistics);
  void init(const TaskRing& ring, int64_t number, const TaskDescriptor& descriptor);
  bool connect(TaskState& state, const TaskDescriptor& descriptor, LaneStatistics& statistics);
  uint32_t hold(const TaskDescriptor& descriptor);
  bool is_scope_open(SlotRef task) const;
  bool push(EdgeRef ref);
  uint32_t release_rings();

  Rings& rings_;
  Ready& ready_;
  bool alone_ = false;
  alignas(64) std::atomic<uint32_t> is_locked_{0};
  std::atomic<int64_t> tasks_{0};
  // Only the wiring thread uses the following members.
  uint64_t at_ = 0;             // next position in the log
  uint64_t known_ = 0;          // number of submits at the last check
  int64_t ended_[kRings] = {};  // the values of scope_released, which are read before the submits
  int64_t released_[kRings] = {};  // the values that were last written to releasable
  int64_t next_[kRings] = {};      // next task to connect
};

}  // namespace pto::ring_buffer
