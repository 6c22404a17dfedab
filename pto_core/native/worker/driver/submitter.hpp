// Adds tasks and buffers to the run. Only for a thread that holds the driver role.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "driver/captured_graph.hpp"
#include "driver/core.hpp"
#include "driver/exchange.hpp"
#include "driver/records.hpp"
#include "engine/interface.hpp"
#include "pto/abi/arguments.h"

namespace pto::worker {

// Return the value of pto_tensor.use. `is_allocated`: the submit of the task allocates the memory.
inline std::byte use_of(Tag tag, bool is_allocated) {
  return static_cast<std::byte>((static_cast<int>(tag) + 1) |
                                (is_allocated ? PTO_USE_ALLOCATED : 0));
}

// The exception for a submit that can never succeed.
struct DeadlockFound {
  Deadlock proof;
};

// The range of task numbers that one thread has submitted. Tasks of other threads may have numbers
// in this range too.
struct TaskRange {
  int64_t first = kNone;
  int64_t last = kNone;

  void add(int64_t task) {
    if (first == kNone) first = task;
    last = task;
  }
};

class Submitter {
 public:
  Submitter(DriverCore& core, Exchange& exchange)
      : core_(core), exchange_(exchange), states_use_(core.configuration.engine.states_use()) {}

  // Called when a run begins while no other run is open.
  void restart();
  // Submit a task. Return its number, or kNone if there is no free space now. Throw Refusal or
  // DeadlockFound. Poll the children after every `submits_per_poll` submits, and earlier if a child
  // is idle.
  int64_t try_submit(const Submission& submission, uint32_t submits_per_poll);
  // Submit tasks from `at` up to `stop`; `prepare(i)` changes `submission` to that of task i.
  // Return `stop`, or the position of the first task that was not submitted: it allocates memory,
  // or there is no free space for it now.
  int64_t try_submit_each(const Submission& submission, int64_t at, int64_t stop,
                          const std::function<void(int64_t)>& prepare, TaskRange& made);
  int64_t try_allocate(uint64_t bytes, uint64_t* address, RunOutcomes* run = nullptr);
  // Throw if this submit can never succeed, even in an empty run.
  void check(const Submission& submission) const;

  void scope_begin(RunOutcomes* run = nullptr);
  void scope_end(RunOutcomes* run = nullptr);
  // End the scopes that the program has left open.
  void end_scopes(RunOutcomes& run);

  // The heap ring of the innermost scope of a run, and the size of the ring that the host must
  // grant before `bytes` more bytes are allocated, or 0 if the granted size suffices.
  struct Grant {
    uint32_t ring;
    uint64_t bytes;
  };
  Grant grant_for(uint64_t bytes, RunOutcomes* run) const;
  void note_granted(uint32_t ring, uint64_t bytes);

  // Parts of a submit that Replayer shares.
  void throw_if_stuck(uint32_t run) const;
  void note_allocated(uint64_t address, uint64_t bytes);
  bool is_poll_due(Kind kind, uint32_t submits);
  // Record a submit that began at `begin` of the trace clock.
  void trace_submit(uint64_t begin, int64_t task, uint32_t callable, const SubmitPosition& place);
  bool traces_arguments() const { return core_.tracer.records(PTO_TRACE_PHASES); }
  // Record an argument of this submit. `address`: that of the tensor after the submit.
  void trace_argument(uint64_t begin, int64_t task, uint32_t member, const pto_tensor& tensor,
                      Tag tag, uint64_t address, bool is_allocated);
  void note_submitted(int64_t task, RunOutcomes& run) {
    core_.book.counts.submitted += 1;
    run.counts.submitted += 1;
    core_.book.note_submitted(task);
    core_.is_dirty = true;
    SharedFlags& flags = core_.flags;
    if (!flags.has_work.load(std::memory_order_relaxed)) flags.has_work = true;
  }

 private:
  void check_sizes(const Submission& submission) const;
  uint64_t find_regions(const Submission& submission, std::vector<SavedRange>* ranges) const;
  void keep(const Submission& submission, int64_t task);
  void trace_call(uint64_t begin, int64_t task, const Submission& submission);
  void trace_allocation(int64_t task, uint64_t bytes, uint64_t address);
  void trace_scope(uint16_t event, uint32_t depth);

  DriverCore& core_;
  Exchange& exchange_;
  const bool states_use_;
  uint64_t granted_[kRings] = {};
  uint64_t high_water_[kRings] = {};
  uint32_t since_poll_ = 0;  // number of submits since the last poll
  uint32_t since_clock_ = 0;
};

// Return the number of bytes that a submit allocates in its heap ring.
uint64_t bytes_to_allocate(const Submission& submission);

// Set the flag that a host call is due if the last host call was more than a slice ago.
void note_if_host_call_due(SharedFlags& flags);
uint64_t longest_slice_ns(const SharedFlags& flags);

// Repeats the submits of a captured graph without calling the program. Only a thread with the
// driver role may use it.
class Replayer {
 public:
  Replayer(DriverCore& core, Exchange& exchange, Submitter& submitter)
      : core_(core), exchange_(exchange), submitter_(submitter) {}

  // Make the steps from `at` up to `stop`. Return `stop`, or the position of the first step that
  // was not made: it needs a grant of heap memory first, or there is no free space for it now.
  size_t make_steps(CapturedGraph& graph, size_t at, size_t stop, bool is_known);
  // Make one step. Return false if there is no free space now. `is_known`: the captured edges hold.
  // Throws the same exceptions as a submit, and a Refusal if another thread has ended the run.
  bool try_step(CapturedGraph& graph, const CapturedStep& step, bool is_known);

 private:
  bool is_granted(const CapturedGraph& graph, const CapturedStep& step) const;
  bool try_allocate(CapturedGraph& graph, const CapturedStep& step);
  bool try_resubmit(CapturedGraph& graph, const CapturedTask& task, bool is_known);
  std::span<const int64_t> explicit_producers(std::span<const Known::Producer> producers);
  void fill_keys(const CapturedGraph& graph, const CapturedTask& task);
  void fill_members(const CapturedGraph& graph, const CapturedTask& task, bool has_keys);
  uint64_t ranges_of(const CapturedTask& task, std::vector<SavedRange>* ranges) const;
  void keep(CapturedGraph& graph, const CapturedTask& task, int64_t number);
  void trace(CapturedGraph& graph, const CapturedTask& task, int64_t number, uint64_t begin);

  DriverCore& core_;
  Exchange& exchange_;
  Submitter& submitter_;
  std::vector<TensorAccess> keys_;  // keys of the current task; kept to reuse their memory
  std::deque<Box> boxes_;           // boxes of the keys
  std::vector<Member> members_;
  std::vector<int64_t> after_;
};

// Return the bytes that a step allocates in its heap ring.
uint64_t bytes_to_reserve(const CapturedGraph& graph, const CapturedStep& step);

}  // namespace pto::worker
