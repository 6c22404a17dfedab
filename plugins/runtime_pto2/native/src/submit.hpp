// The steps of a submit: check it, take slots, look up edges, reserve heap and space in the tensor
// map, write payload, descriptor and records, and insert the accesses into the map. The edges stay
// in a list until the submit is published.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "checks.hpp"
#include "current_rings.hpp"
#include "draft.hpp"
#include "publisher.hpp"
#include "run_state.hpp"

namespace pto::ring_buffer {

class Submitter {
 public:
  Submitter(RunState& run, const KernelTable& kernels, CurrentRings& current, Publisher& publisher)
      : run_(run), current_(current), publisher_(publisher), checks_(run, kernels, current) {}

  void begin() { next_key_ = 0; }

  // Return the id of the task (of block 0 for a block task); -1 after an error.
  int64_t submit(pto_tensor_task& task);

 private:
  bool take_slots(Draft& draft);
  void find_edges(Draft& draft);
  void find_writers(const Access& access, uint32_t kind, uint64_t& counter);
  void find_readers(const Access& access);
  bool place_outputs(Draft& draft);
  bool address_outputs(Draft& draft);
  bool reserve_entries(const Draft& draft);
  void write_records(const Draft& draft);
  void insert_accesses(const Draft& draft);
  [[gnu::cold, gnu::noinline]] bool log_submit(const Draft& draft);
  int64_t owner_of(const pto_tensor_data& tensor);

  RunState& run_;
  CurrentRings& current_;
  Publisher& publisher_;
  SubmitChecks checks_;
  uint64_t next_key_ = 0;
  Access accesses_[PTO_MAX_TASK_TENSORS];  // data of the current submit
};

}  // namespace pto::ring_buffer
