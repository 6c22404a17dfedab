// Adds tasks and buffers to the run. Only for a thread that holds the driver role.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "driver/call.hpp"
#include "driver/core.hpp"
#include "driver/exchange.hpp"

namespace pto::hierarchy {

class Submitter {
 public:
  Submitter(DriverCore& core, Exchange& exchange)
      : core_(core), exchange_(exchange), states_use_(core.configuration.engine.states_use()) {}

  void begin_run();
  // Submit a task. Return its number, or kNone if there is no free space now. Throw Refusal or
  // DeadlockFound. Poll the children after every `submits_a_poll` submits, and earlier if a child
  // is idle.
  int64_t try_submit(const Call& call, uint32_t submits_a_poll);
  // Submit tasks from `at` up to `stop`; `prepare(i)` changes `call` to the call of task i. Return
  // `stop`, or the position of the first task that was not submitted: it allocates memory, or there
  // is no free space for it now.
  int64_t try_submit_each(const Call& call, int64_t at, int64_t stop,
                          const std::function<void(int64_t)>& prepare, TaskRange& made);
  int64_t try_allocate(uint64_t bytes, uint64_t* address, const RunOutcomes* run = nullptr);
  // Throw if this submit can never succeed, even in an empty run.
  void check(const Call& call) const;

  void scope_begin(const RunOutcomes* run = nullptr);
  void scope_end(const RunOutcomes* run = nullptr);
  // End the scopes that the program has left open.
  void end_scopes();
  uint32_t depth() const { return depth_; }

  // The heap ring of the innermost scope, and the size of the ring that the host must grant before
  // `bytes` more bytes are allocated, or 0 if the granted size suffices.
  struct Grant {
    uint32_t ring;
    uint64_t bytes;
  };
  Grant grant_for(uint64_t bytes) const;
  void note_granted(uint32_t ring, uint64_t bytes);

  // Parts of a submit that Replayer shares.
  void throw_if_stuck() const;
  void note_allocated(uint64_t address, uint64_t bytes);
  bool is_poll_due(Kind kind, uint32_t submits);
  // Record a submit that began at `begin` of the trace clock.
  void trace_submit(uint64_t begin, int64_t task, uint32_t callable, const Place& place);
  bool traces_arguments() const { return core_.tracer.records(PTO_TRACE_PHASES); }
  // Record an argument of this submit. `address`: that of the tensor after the submit.
  void trace_argument(uint64_t begin, int64_t task, uint32_t member, const pto_tensor& tensor,
                      Tag tag, uint64_t address, bool is_allocated);
  void note_submitted(int64_t task) {
    core_.book.counts.submitted += 1;
    core_.book.note_submitted(task);
    core_.is_dirty = true;
    SharedFlags& flags = core_.flags;
    if (!flags.has_work.load(std::memory_order_relaxed)) flags.has_work = true;
  }

 private:
  void check_sizes(const Call& call) const;
  uint64_t find_regions(const Call& call, std::vector<SavedRange>* ranges) const;
  void keep(const Call& call, int64_t task);
  void trace_call(uint64_t begin, int64_t task, const Call& call);
  void trace_allocation(int64_t task, uint64_t bytes, uint64_t address);
  void trace_scope(uint16_t event);

  DriverCore& core_;
  Exchange& exchange_;
  const bool states_use_;
  uint64_t granted_[kRings] = {};
  uint64_t high_water_[kRings] = {};
  std::vector<Member> members_;  // members of the current submit
  uint32_t depth_ = 0;           // number of open scopes
  uint32_t since_poll_ = 0;      // number of submits since the last poll
  uint32_t since_clock_ = 0;
};

// Return the number of bytes that a submit allocates in its heap ring.
uint64_t bytes_to_allocate(const Call& call);

// Set the flag that a host call is due if the last host call was more than a slice ago.
void note_if_host_call_due(SharedFlags& flags);
uint64_t longest_slice_ns(const SharedFlags& flags);

}  // namespace pto::hierarchy
