// The steps of a submit: check it, take slots, look up edges, reserve heap and space in the tensor
// map, write payload, descriptor and records, and insert the accesses into the map. The edges stay
// in a list until the submit is published.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "current_rings.hpp"
#include "draft.hpp"
#include "pto/engine/kernel_table.hpp"
#include "run_state.hpp"

namespace pto::ring_buffer {

// The checks of a submit. A check that fails reports the violated rule and returns false; the first
// error ends the run.
//
// Called by the orchestrator only.
class SubmitChecks {
 public:
  SubmitChecks(RunState& run, const KernelTable& kernels, CurrentRings& current)
      : run_(run), kernels_(kernels), current_(current) {}

  // Check the submit and fill in the data for its later steps: kernel, ring, id, counts, accesses.
  // Not inlined, because inlining would take registers from these steps and make them 2 % slower.
  [[gnu::noinline]] bool check(Draft& draft);
  // Return whether the scope of a task is open, so that its outputs have memory.
  bool is_scope_open(int64_t id) const;

 private:
  bool check_kernel(Draft& draft);
  bool check_lanes(Draft& draft);
  bool check_clusters(const Draft& draft);
  bool check_dependencies(const Draft& draft);
  bool check_operand(const Draft& draft);
  // `has_flags`: whether the parameters have the flag is_manual.
  template <bool has_flags>
  bool check_parameters(Draft& draft);
  bool check_signature(const Draft& draft, const pto_signature& signature);
  template <bool has_flags>
  bool check_tensor(Draft& draft, uint32_t index);
  bool check_new_output(Draft& draft, uint32_t index);
  bool check_address(const Draft& draft, uint32_t index);
  template <bool has_flags>
  bool locate(const Draft& draft, uint32_t index, Access* access);
  bool is_output_of(int64_t id, uint64_t address);

  [[gnu::cold]] bool reject_kernel(const Draft& draft);
  [[gnu::cold]] bool reject_core_type(const Draft& draft);
  [[gnu::cold]] bool reject_parameters(const Draft& draft);
  [[gnu::cold]] bool reject_scalars(const Draft& draft);
  [[gnu::cold]] bool reject_tensors(const Draft& draft);
  [[gnu::cold]] bool reject_view(const Draft& draft, uint32_t index);
  [[gnu::cold]] bool reject_owner(const Draft& draft, uint32_t index, int64_t owner);
  [[gnu::cold]] bool reject_other_run(const Draft& draft, uint32_t index);
  template <class... Parts>
  [[gnu::cold, gnu::noinline]] bool reject_parameter(const Draft& draft, uint32_t index,
                                                     Parts... run);

  RunState& run_;
  const KernelTable& kernels_;
  CurrentRings& current_;
};

// The newest submit, from its last step until it is published.
//
// Schedulers may start a task as soon as it is in the stream. So the newest submit is held back
// until the next call, which may be add_dep(); its edges stay in a list until then. Decision record
// 0005 compares this with the alternatives.
//
// Called by the orchestrator only.
class Publisher {
 public:
  Publisher(RunState& run, CurrentRings& current) : run_(run), current_(current) {}

  void begin() {
    held_ = {};
    last_id_ = kNoTask;
  }

  void hold(const Draft& draft) {
    held_ = {draft.ring, draft.count, draft.number};
    last_id_ = draft.id;
  }

  // Append the task that is held back, if any, to the stream. If this fails, the run has failed.
  void append() {
    if (held_.count == 0) return;
    current_.take([this](auto& rings) { return rings.publish(held_, current_.edges()); });
    held_.count = 0;
  }
  // Append the task that is held back, and announce the stream to the schedulers.
  void publish() {
    append();
    run_.stream.announce();
  }

  // Add an edge to the task that is held back, which must be `to`. Return false after an error.
  bool add_dep(int64_t from, int64_t to, CallSite at);

 private:
  bool check_dep(int64_t from, int64_t to, CallSite at);

  RunState& run_;
  CurrentRings& current_;
  HeldTask held_ = {};
  int64_t last_id_ = kNoTask;
};

class RingSubmitter {
 public:
  RingSubmitter(RunState& run, const KernelTable& kernels, CurrentRings& current,
                Publisher& publisher)
      : run_(run), current_(current), publisher_(publisher), checks_(run, kernels, current) {}

  void begin() { next_key_ = 0; }

  // Return the id of the task (of block 0 for a block task); -1 after an error.
  int64_t submit(pto_tensor_task& task);
  bool is_scope_open(int64_t id) const { return checks_.is_scope_open(id); }

 private:
  bool take_slots(Draft& draft);
  void find_edges(Draft& draft);
  void find_chip_edges(Draft& draft);
  void find_writers(const Access& access, uint32_t kind, uint64_t& counter);
  void find_readers(const Access& access);
  bool place_outputs(Draft& draft);
  bool address_outputs(Draft& draft);
  bool reserve_entries(const Draft& draft);
  void write_records(const Draft& draft);
  void insert_accesses(const Draft& draft);
  template <bool has_flags>
  void insert_each(const Draft& draft);
  [[gnu::cold, gnu::noinline]] bool log_submit(const Draft& draft);
  bool log_details(const Draft& draft);
  bool log_operand(const pto_tensor_task& task);
  int64_t owner_of(const pto_tensor_data& tensor);

  RunState& run_;
  CurrentRings& current_;
  Publisher& publisher_;
  SubmitChecks checks_;
  uint64_t next_key_ = 0;
  Access accesses_[PTO_MAX_TASK_TENSORS];  // data of the current submit
};

}  // namespace pto::ring_buffer
